"""A thousand episodes in flight over a stand-in for vLLM, with faults: how much of it they use.

The stand-in computes nothing. Measured is the client: threads that play groups, an event loop, a fleet.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from prometheus_client import CollectorRegistry
from tokenizers import Tokenizer

import kbqa.policies
from kbqa.environment import Budget
from kbqa.errors import PolicyUnavailableError
from kbqa.kg.actions import GET_TAIL_RELATIONS, Action, ActionResult, Success
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.vllm import Fleet, VllmPolicy, VllmServer, Weights
from kbqa.protocols.kg_r1 import KgR1, write_query
from kbqa.rollouts import Agent, linear_rollout
from kbqa.telemetry.metrics import Metrics
from kbqa.trajectory import Question, Segment

_TOKENIZER = Path(kbqa.policies.__path__[0]) / "reader" / "tokenizer.json"  # any will do
_GROUPS, _SAMPLES, _TURNS = 125, 8, 4
_CAPACITY, _MEAN_S = 512, 12.0  # twice vLLM's usual --max-num-seqs; turns of 256 tokens at 20 tokens/s
_STUCK, _TIMEOUT_S = 700, 90.0  # so many completions are asked for within 20 seconds
_WARM_UP_S, _WINDOW_S = 40.0, 125.0
_GRAPH_S = 0.05
_START_S = 60.0


class _Graph:
    """Tools that take as long as a kg_server does, and find nothing."""

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        time.sleep(_GRAPH_S)
        return [Success((), 0) for _ in actions]


def measure() -> list[str]:
    """Lines of a report."""
    protocol = KgR1()
    codec = TokenizerCodec(Tokenizer.from_file(str(_TOKENIZER)))
    said = codec.encode([Segment(write_query("look", Action(GET_TAIL_RELATIONS, {"entity": "Ada"})))])
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    program = [
        sys.executable,
        "-m",
        "benchmarks.stand_in",
        str(port),
        str(_CAPACITY),
        str(_MEAN_S),
        str(_STUCK),
    ]
    stand_in = subprocess.Popen([*program, *map(str, said)])
    try:
        _await(url)
        metrics, server = Metrics(CollectorRegistry()), VllmServer(url)
        fleet = Fleet([VllmPolicy(server, codec, metrics, timeout_s=_TIMEOUT_S)], metrics, patience_s=10)
        fleet.hold(Weights("bench/v1", "v1", "full", Path("."), None))
        agent = Agent(fleet, codec, protocol, _Graph(), Budget(_TURNS, 8192, 512, 512))
        until = time.monotonic() + _WARM_UP_S + _WINDOW_S

        def play(group: int) -> Counter[str]:
            ends = Counter[str]()
            question = Question(f"q{group}", f"Who is {group}?", (), ("Ada",), "world")
            while time.monotonic() < until:
                try:
                    played = linear_rollout(agent, question, _SAMPLES, 1.0, deadline=until)
                except PolicyUnavailableError:  # nothing is left of the group
                    ends["lost"] += _SAMPLES
                    continue
                ends.update(trajectory.status.value for trajectory in played)
            return ends

        with ThreadPoolExecutor(_GROUPS) as threads:
            groups = [threads.submit(play, group) for group in range(_GROUPS)]
            time.sleep(_WARM_UP_S)
            before = httpx.get(f"{url}/used", timeout=60).json()
            time.sleep(_WINDOW_S - 5)
            after = httpx.get(f"{url}/used", timeout=60).json()
            ends = sum((group.result() for group in groups), Counter[str]())
            end = httpx.get(f"{url}/used", timeout=60).json()
        fleet.close()
        server.close()
    finally:
        stand_in.kill()
        stand_in.wait()
    seconds = after["at"] - before["at"]
    used = (after["busy_s"] - before["busy_s"]) / (seconds * _CAPACITY)
    return [
        f"in flight: {_GROUPS * _SAMPLES} episodes use {used:.3f} of the engine's capacity (target: 0.95), "
        f"{(after['asked'] - before['asked']) / seconds:.0f} completions/s",
        f"  episodes: {dict(ends)}; of {end['asked']} completions one was stuck, and {end['failed']} failed",
    ]


def _await(url: str) -> None:
    for _ in range(int(_START_S / 0.2)):
        try:
            httpx.get(f"{url}/health", timeout=5)
            return
        except httpx.HTTPError:
            time.sleep(0.2)
    raise RuntimeError(f"no stand-in at {url} within {_START_S:g} s")

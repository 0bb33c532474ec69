"""A whole rollout run beside the rate of its engine alone: a real vLLM server, bound to one core in both.

The policy is a small Qwen2 of random weights. It writes as many tokens as a teacher would at that
point of an episode, and the episode goes on with the teacher's, so that it runs its course over the
graph. The engine alone gets the same prompts and lengths, all at once, from a client that does
nothing else. Worker, kg_server and that client run on the other cores.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from benchmarks.load import serving
from kbqa.cold_start.demonstrations import demonstrate
from kbqa.cold_start.imitation import example
from kbqa.datasets import Dataset, load_dataset
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.client import HttpGraphTools
from kbqa.policies.base import Codec, Completion, FinishReason, Policy, SamplingParams
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import Recipe, load_recipe
from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.serving.engine import Engine
from kbqa.serving.hosting import Hosted, OnVllm
from kbqa.telemetry.metrics import Metrics
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model, train_tokenizer
from kbqa.trajectory import Question
from kbqa.wire import Purpose, RolloutRequest
from tests.vllm_server import Vllm

_CONFIG = SmallPolicyConfig(2048, layers=4, width=192, heads=6, feed_forward=512, max_length=768, tied=False)
_QUESTIONS, _SAMPLES = 96, 8
_AT_A_TIME = 32  # questions, as the worker's default has it
_ROUNDS = 3
_VERSIONS = 5  # published to see how long it takes until they are loaded
_ENGINE_CORE = 0
_RUN = "bench"

Publisher = Callable[[int], Callable[[], PolicyVersion]]


def measure() -> list[str]:
    """Lines of a report."""
    cores = sorted(os.sched_getaffinity(0))
    if reason := Vllm.missing() or (len(cores) < 2 and "it takes two cores"):
        return [f"vllm: skipped: {reason}"]
    os.sched_setaffinity(0, cores[1:])  # what is started from here inherits it
    try:
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            return _measure(Path(directory), stack)
    finally:
        os.sched_setaffinity(0, cores)


def _measure(home: Path, stack: ExitStack) -> list[str]:
    dataset, recipe = load_dataset("world", seed=1), load_recipe("kg-r1-small", {"rollout.n": _SAMPLES})
    store, publisher = _policies(home, dataset, recipe)
    version = publisher(1)()
    tools = stack.enter_context(HttpGraphTools(_kg_server(home, dataset, stack)))
    server = Vllm(
        version.path,
        home / "vllm.log",
        dtype="bfloat16",
        options=("--max-num-seqs", "128"),
        command=("taskset", "--cpu-list", str(_ENGINE_CORE)),
    )
    stack.callback(server.kill)
    server.ready()
    codec = TokenizerCodec.load(version.path)
    script = _script(dataset, recipe, tools, codec)
    control = VllmServer(server.url)
    stack.callback(control.close)
    host = _Rehearsal(
        OnVllm([control], Metrics(CollectorRegistry()), precision="bfloat16", timeout_s=600), script
    )
    engine = Engine(store, Metrics(CollectorRegistry()), host)
    stack.callback(engine.close)
    rollouts = RolloutExecutor(engine, tools, Patience(60, 60, 600), "benchmark")
    rates: list[tuple[float, float]] = []
    shares: list[float] = []
    for _ in range(_ROUNDS + 1):  # the first one warms up
        host.calls.clear()
        httpx.post(f"{server.url}/reset_prefix_cache", timeout=60).raise_for_status()
        whole, share = _run(rollouts, script.questions, recipe, host)
        httpx.post(f"{server.url}/reset_prefix_cache", timeout=60).raise_for_status()
        rates.append((whole, _alone(host)))
        shares.append(share)
    whole, alone = (statistics.median(rate) for rate in zip(*rates[1:], strict=True))
    loaded_s = [_loaded(engine, publisher(number), number) for number in range(2, 2 + _VERSIONS)]
    return [
        f"vllm: {whole:,.0f} generated tokens/s of a rollout run, the engine alone {alone:,.0f}, "
        f"utilisation {whole / alone:.2f} (target: 0.9)",
        f"  graph wait {statistics.median(shares[1:]):.1%} of the rollouts' time (target: under 5 %)",
        f"  whole weights, {version.path.joinpath('model.safetensors').stat().st_size / 1e6:.0f} MB: "
        f"{statistics.median(loaded_s):.2f} s from publishing to the first turn that they may write",
    ]


def _policies(home: Path, dataset: Dataset, recipe: Recipe) -> tuple[PolicyStore, Publisher]:
    """A store; and from a version's number what publishes it there."""
    texts = [*dataset.graph_lines(), *(question.text for question in dataset.splits.train)]
    tokenizer = train_tokenizer(texts, recipe.protocol.build().tags, _CONFIG.vocabulary)
    store = PolicyStore(home / "policies")

    def publisher(number: int) -> Callable[[], PolicyVersion]:
        model = build_model(tokenizer, _CONFIG, seed=number)
        return lambda: store.publish(
            _RUN,
            number,
            lambda directory: save_model(model, tokenizer, directory),
            recipe=recipe.model_dump(mode="json"),
            recipe_digest=recipe.digest(),
            step=0,
            metrics={},
            probe=take_probe(model, tokenizer.encode("Who is it?").ids),
        )

    return store, publisher


def _kg_server(home: Path, dataset: Dataset, stack: ExitStack) -> str:
    catalog = GraphCatalog(home)
    catalog.load(dataset.graph.name, dataset.graph.as_file(home))
    catalog.close()
    return stack.enter_context(serving(["-m", "services.kg_server", "--home", str(home)], "/readyz"))[0]


@dataclass
class _Script:
    """What a teacher writes, by all tokens before it."""

    questions: list[Question] = field(default_factory=list)
    turns: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)


def _script(dataset: Dataset, recipe: Recipe, tools: HttpGraphTools, codec: Codec) -> _Script:
    """Episodes that fit into the recipe's budgets."""
    script, budget, protocol = _Script(), recipe.rollout.budget(), recipe.protocol.build()
    for question in dataset.splits.train:
        demonstration = demonstrate(question, protocol, tools, budget.max_turns)
        if demonstration is None:
            continue
        episode = example(demonstration, codec)
        observed = demonstration.passages[2::2]
        longest = max((len(codec.encode(passage.segments)) for passage in observed), default=0)
        if longest > budget.max_observation_tokens or len(episode.token_ids) >= budget.max_tokens:
            continue
        script.questions.append(replace(question, path=()))
        script.turns.update(_turns(episode.token_ids, episode.mask))
        if len(script.questions) == _QUESTIONS:
            break
    return script


def _turns(ids: Sequence[int], mask: Sequence[bool]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    start = None
    for at, mine in enumerate([*mask, False]):
        if mine and start is None:
            start = at
        elif not mine and start is not None:
            yield tuple(ids[:start]), tuple(ids[start:at])
            start = None


@dataclass(frozen=True)
class _Call:
    prompts: list[list[int]]
    params: SamplingParams
    tokens: int  # that the engine wrote


class _Rehearsal:
    """Engines whose completions are computed, and then replaced by the script's.

    Attributes:
        calls: what the engine was asked for, in order.
    """

    def __init__(self, host: OnVllm, script: _Script) -> None:
        self._host, self._script = host, script
        self._lock = threading.Lock()
        self.calls: list[_Call] = []
        self.engine: Policy

    def build(self, version: PolicyVersion, codec: TokenizerCodec, *, deterministic: bool) -> Hosted:
        hosted = self._host.build(version, codec, deterministic=deterministic)
        self.engine = hosted.policy
        return _Rehearsed(self, hosted)

    def unready(self) -> str | None:
        return self._host.unready()

    def reads(self, version: PolicyVersion) -> bool:
        return self._host.reads(version)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **stopping: Any
    ) -> list[Completion]:
        expected = [self._script.turns[tuple(prompt)] for prompt in prompts]
        params = replace(params, max_tokens=len(expected[0]), stop=())  # siblings write the same
        written = self.engine.generate(prompts, params, **stopping)
        tokens = sum(len(completion.token_ids) for completion in written)
        with self._lock:
            self.calls.append(_Call([list(prompt) for prompt in prompts], params, tokens))
        return [
            Completion(ids, (0.0,) * len(ids), FinishReason.STOP, completion.policy_version)
            for ids, completion in zip(expected, written, strict=True)
        ]


class _Rehearsed:
    def __init__(self, rehearsal: _Rehearsal, hosted: Hosted) -> None:
        self._rehearsal, self._hosted = rehearsal, hosted
        self.swap, self.close = hosted.swap, hosted.close

    @property
    def policy(self) -> Policy:
        return self

    @property
    def alive(self) -> bool:
        return self._hosted.alive

    @property
    def available(self) -> bool:
        return self._hosted.available

    @property
    def max_length(self) -> int:
        return self._hosted.policy.max_length

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **stopping: Any
    ) -> list[Completion]:
        return self._rehearsal.generate(prompts, params, **stopping)


def _run(
    rollouts: RolloutExecutor, questions: Sequence[Question], recipe: Recipe, host: _Rehearsal
) -> tuple[float, float]:
    """Generated tokens a second, and the share of the rollouts' time that went by waiting for the graph."""
    requests = [
        RolloutRequest(
            run=_RUN,
            request_id=f"t{number}",
            purpose=Purpose.TRAIN,
            question=question,
            recipe_digest=recipe.digest(),
            min_policy_version=1,
            n=_SAMPLES,
            temperature=1.0,
            seed=number,
            sent_at=time.time(),
            deadline_s=3600.0,
        )
        for number, question in enumerate(questions)
    ]
    began = time.perf_counter()
    with ThreadPoolExecutor(_AT_A_TIME) as workers:
        replies = list(workers.map(rollouts.execute, requests))
    seconds = time.perf_counter() - began
    if failures := [reply.failure for reply in replies if reply.failure is not None]:
        raise RuntimeError(f"{len(failures)} rollouts failed, the first: {failures[0]}")
    graph_s = sum(reply.timings.graph_s for reply in replies)
    return sum(call.tokens for call in host.calls) / seconds, graph_s / sum(
        reply.timings.rollout_s for reply in replies
    )


def _alone(host: _Rehearsal) -> float:
    """Tokens a second of the engine for the same prompts and lengths, more than it takes always waiting."""
    began = time.perf_counter()
    with ThreadPoolExecutor(2 * _AT_A_TIME) as clients:
        written = list(clients.map(lambda call: host.engine.generate(call.prompts, call.params), host.calls))
    seconds = time.perf_counter() - began
    return sum(len(completion.token_ids) for completions in written for completion in completions) / seconds


def _loaded(engine: Engine, publish: Callable[[], PolicyVersion], number: int) -> float:
    """Seconds from the beginning of publishing a version until requests are played with it."""
    began = time.perf_counter()
    publish()
    with engine.lease(_RUN, number, wait_s=120):
        return time.perf_counter() - began

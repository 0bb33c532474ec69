"""A gateway whose policy and graph are made of pauses: what is left is its own work.

    python -m benchmarks.scripted_gateway --port N --streams 200 --queue 40 --pause-s 0.25

A question takes four turns; after each pause there is an event. Every text that the policy writes
and the graph finds holds the moment at which it was given to the gateway (`time.monotonic()`,
which is the same for all processes of a machine), so that a client can tell how long it took on.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kbqa.environment import Budget
from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_TAIL_ENTITIES,
    LINK_ENTITIES,
    Action,
    ActionResult,
    Item,
    Mention,
    Success,
)
from kbqa.kg.store import GraphInfo
from kbqa.policies.base import Completion, FinishReason, SamplingParams
from kbqa.policies.frame import Frame
from kbqa.protocols.kg_r1 import KgR1
from kbqa.serving.players import Players
from kbqa.serving.policies import FixedPolicy, ServedPolicy
from kbqa.trajectory import Segment
from services.gateway.app import create_app
from services.gateway.collector import look_seldom
from services.gateway.settings import GatewaySettings
from services.http import serve

TURNS = 4
EVENTS = 3 * TURNS + 1
"""Of a stream: linked; thought, action and observation but for the last turn, a thought; answer, done."""

_ASK = '<think>at {at:.6f}</think><kg-query>get_tail_entities("Topic", "relation")</kg-query>'
_ANSWER = "<think>at {at:.6f}</think><answer>found</answer>"


class Bytes:
    """A tokenizer: every byte is a token."""

    frame = Frame()

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        return list("".join(segment.text for segment in segments).encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode("utf-8", "replace")


class PausingPolicy:
    """Writes a turn after two pauses: its thought and its action come at once."""

    max_length = 1 << 20

    def __init__(self, codec: Bytes, pause_s: float) -> None:
        self._codec, self._pause_s = codec, pause_s

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        time.sleep(2 * self._pause_s)
        last = self._codec.decode(prompts[0]).count("</information>") + 1 >= TURNS
        text = (_ANSWER if last else _ASK).format(at=time.monotonic())
        tokens = tuple(self._codec.encode([Segment(text)]))
        return [Completion(tokens, (0.0,) * len(tokens), FinishReason.STOP, "v000001-scripted")] * len(
            prompts
        )


class PausingTools:
    """Finds one entity after a pause. What the gateway asks on its own behalf it is told at once."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def graphs(self) -> list[GraphInfo]:
        return [GraphInfo("graph", "1", 1, 2)]

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        if len(actions) == 1 and actions[0].name == GET_TAIL_ENTITIES:
            time.sleep(self._pause_s)
            found = Item("found", "found"), Item("at", f"at {time.monotonic():.6f}")
            return [Success(found, len(found))]
        return [told(action) for action in actions]


def told(action: Action) -> ActionResult:
    """What a small graph says to whatever the gateway asks on its own behalf."""
    if action.name == LINK_ENTITIES:
        return Success((Mention("Topic", "Topic", 0, 5),), 1)
    item = {GET_TAIL_ENTITIES: "found", GET_HEAD_ENTITIES: "Topic"}.get(action.name, "relation")
    return Success((Item(item, item),), 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--queue", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=0.25)
    options = parser.parse_args()
    codec = Bytes()
    served = ServedPolicy(
        run="scripted",
        version="v000001-scripted",
        recipe="kg-r1",
        players=Players(
            PausingPolicy(codec, options.pause_s),
            codec,
            KgR1("brief"),
            Budget(TURNS, max_tokens=100_000, max_turn_tokens=1000, max_observation_tokens=1000),
        ),
        close=lambda: None,
        alive=lambda: True,
    )
    with tempfile.TemporaryDirectory() as home:
        settings = GatewaySettings.load(
            home=Path(home), concurrency=options.streams, queue=options.queue, cache_bytes=0
        )
        app = create_app(settings, FixedPolicy(served), PausingTools(options.pause_s))
        look_seldom()
        serve(app, "127.0.0.1", options.port, drain_s=1)


if __name__ == "__main__":
    main()

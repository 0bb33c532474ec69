"""Promotions under load: a third of the versions is bad, and no question may notice.

Streams ask a gateway without a pause while one version after another is promoted. A good version is a small
model that recites one answer. A bad one fails its probe, has another shape than its configuration says, has a
damaged file, or answers nothing. The first three must never answer. The fourth passes every check, and must
be rolled back after the questions of its trial.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch
from torch.nn import functional

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.probe import Probe
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import load_recipe
from kbqa.rollouts import linear_rollout
from kbqa.serving.players import Players
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model, train_tokenizer
from kbqa.trajectory import Question
from services.cli.supervisor import Stack
from tests.unit.policies_fixtures import ScriptedPolicy

_PROMOTIONS, _STREAMS = 50, 100
_TRIAL = 20  # questions of either version
_KINDS = (
    "good",
    "good",
    "probe",
    "good",
    "good",
    "shape",
    "good",
    "good",
    "damaged",
    "good",
    "good",
    "silent",
)
_ASK = {"question": "Who starred in Big?", "kg": "films", "topic_entities": ["Big"], "stream": True}
_REPLY = "<think>known</think><answer>Tom Hanks</answer>"
_RUN, _PATIENCE_S = "promoted", 300.0
_POLL_S = 0.2
_SIZE = SmallPolicyConfig(vocabulary=400, layers=2, width=64, heads=2, feed_forward=128, max_length=512)
_LESSONS = 150


@dataclass
class Outcome:
    """What the streams saw.

    Attributes:
        ends: streams by their end: `answered`, `unanswered`, an error's kind, a status, or an exception.
        answers: documents by the version that they name.
        kinds: the kind of each promoted version.
        seconds: from promotions until good versions answered, and until silent ones were rolled back.
    """

    ends: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, str] = field(default_factory=dict)
    seconds: list[tuple[str, float]] = field(default_factory=list)

    def answers_of(self, *kinds: str) -> int:
        return sum(self.answers[version] for version, kind in self.kinds.items() if kind in kinds)

    @property
    def failed(self) -> dict[str, int]:
        """Streams that ended without a document."""
        return {end: count for end, count in self.ends.items() if end not in ("answered", "unanswered")}

    @property
    def longest(self) -> int:
        """Most documents of a silent version."""
        silent = [self.answers[version] for version, kind in self.kinds.items() if kind == "silent"]
        return max(silent, default=0)


def measure() -> list[str]:
    """Lines of a report."""
    began = time.monotonic()
    outcome = promote(_PROMOTIONS, _STREAMS)
    bad = sum(kind != "good" for kind in outcome.kinds.values())
    slowest = {kind: max(s for k, s in outcome.seconds if k == kind) for kind, _ in outcome.seconds}
    return [
        f"promotions: {len(outcome.kinds)} ({bad} bad) under {_STREAMS} streams in "
        f"{time.monotonic() - began:.0f} s: {outcome.ends.total():,} questions, "
        f"{sum(outcome.failed.values())} failed {outcome.failed or ''}".rstrip(),
        f"  answers of versions that failed a check: {outcome.answers_of('probe', 'shape', 'damaged')}; "
        f"at most {outcome.longest} of a silent version before its rollback "
        f"(trial of {_TRIAL} questions, {_STREAMS} in flight)",
        *(f"  slowest {_WORDS[kind]}: {seconds:.1f} s" for kind, seconds in slowest.items()),
    ]


_WORDS = {"good": "good version to answer", "silent": "rollback of a silent version"}


def promote(promotions: int, streams: int) -> Outcome:
    """Promote so many versions while so many streams ask."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        publisher = Publisher(home)
        environment = {
            "KBQA_GATEWAY_READER": "false",
            "KBQA_GATEWAY_POLL_S": str(_POLL_S),
            "KBQA_GATEWAY_CACHE_BYTES": "0",
            "KBQA_GATEWAY_CONCURRENCY": str(streams),
            "KBQA_GATEWAY_QUEUE": str(streams),
            "KBQA_GATEWAY_MAX_ROWS": "64",
            "KBQA_GATEWAY_ROLLBACK_QUESTIONS": str(_TRIAL),
        }
        publisher.promote("good")
        with Stack(
            home, services=["kg_server", "gateway"], free_ports=True, environment=environment
        ) as stack:
            stack.wait_ready(_PATIENCE_S)
            return asyncio.run(_promote(stack.urls["gateway"], publisher, promotions, streams))


async def _promote(url: str, publisher: Publisher, promotions: int, streams: int) -> Outcome:
    outcome = Outcome()
    last = publisher.promoted.id
    outcome.kinds[last] = "good"
    async with _streams(url, streams, outcome):
        for kind in itertools.islice(itertools.cycle(_KINDS), promotions):
            # The earlier version needs as many questions as the trial counts.
            await _until(lambda last=last: outcome.answers[last] > _TRIAL + streams)
            version = await asyncio.to_thread(publisher.promote, kind)
            outcome.kinds[version.id] = kind
            at, before = time.monotonic(), outcome.answers[last]
            match kind:
                case "good":
                    await _until(lambda version=version: outcome.answers[version.id] > 0)
                    last = version.id
                case "silent":
                    await _until(lambda version=version: outcome.answers[version.id] >= _TRIAL)
                    before = outcome.answers[last]
                    await _until(lambda last=last, before=before: outcome.answers[last] > before)
                case _:  # long enough to be noticed
                    await asyncio.sleep(5 * _POLL_S)
                    await _until(lambda last=last, before=before: outcome.answers[last] > before + streams)
                    continue
            outcome.seconds.append((kind, time.monotonic() - at))
    return outcome


async def _until(reached: Any) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not reached():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _streams(url: str, count: int, outcome: Outcome) -> AsyncIterator[None]:
    """Streams that ask again and again while the block runs, and finish at its end."""
    ending = asyncio.Event()
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=url, timeout=_PATIENCE_S, limits=limits) as client:

        async def ask_on() -> None:
            while not ending.is_set():
                await _ask(client, outcome)

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(ask_on())
            try:
                yield
            finally:
                ending.set()


async def _ask(client: httpx.AsyncClient, outcome: Outcome) -> None:
    end = "cut off"
    try:
        async with client.stream("POST", "/v1/answer", json=_ASK) as response:
            if response.status_code != 200:
                end = str(response.status_code)
                return
            async for line in response.aiter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if event["event"] == "done":
                    document = event["document"]
                    outcome.answers[document["policy_version"]] += 1
                    end = "answered" if document["answers"] else "unanswered"
                elif event["event"] == "error":
                    end = str(event["error"]["type"])
    except httpx.HTTPError as error:
        end = type(error).__name__
    finally:
        outcome.ends[end] += 1


class Publisher:
    """Publishes and promotes versions: of a small model that recites, and bad ones.

    Attributes:
        promoted: the last version.
    """

    promoted: PolicyVersion

    def __init__(self, home: Path) -> None:
        self._pointer = home / "policies" / "promoted.json"
        self._store = PolicyStore(home / "policies")
        self._recipe = load_recipe("kg-r1-small", {"protocol.entities": "names"})
        tags = self._recipe.protocol.build().tags
        self._tokenizer = train_tokenizer([_REPLY, str(_ASK)] * 3, tags, _SIZE.vocabulary)
        text, replies = self._episode(home)
        self._good = build_model(self._tokenizer, _SIZE, seed=0)
        self._probe = _teach(self._good, text, replies)
        self._silent = build_model(self._tokenizer, _SIZE, seed=1).eval()
        self._numbers = itertools.count(1)

    def promote(self, kind: str) -> PolicyVersion:
        """Promote a new version of a kind."""
        number = next(self._numbers)
        model = self._silent if kind == "silent" else self._good
        probe = self._probe if kind != "silent" else take_probe(self._silent, self._probe.token_ids)
        if kind == "probe":
            probe = dataclasses.replace(probe, logprobs=tuple(p - 1 for p in probe.logprobs))

        def write(directory: Path) -> None:
            with torch.no_grad():  # a row that nothing reads, so that each version has its own digest
                model.model.embed_tokens.weight[0, 0] = number * 1e-3
            save_model(model, self._tokenizer, directory)
            if kind == "shape":
                path = directory / "config.json"
                config = json.loads(path.read_text()) | {"hidden_size": 2 * _SIZE.width}
                path.write_text(json.dumps(config))

        version = self._store.publish(
            _RUN,
            number,
            write,
            recipe=self._recipe.model_dump(mode="json"),
            recipe_digest=self._recipe.digest(),
            step=number,
            metrics={},
            probe=probe,
        )
        if kind == "damaged":
            weights = version.path / "model.safetensors"
            data = bytearray(weights.read_bytes())
            data[len(data) // 2] ^= 0xFF
            weights.write_bytes(data)
            # `promote` would refuse it: the disk was damaged later.
            self._pointer.write_text(json.dumps({"run": _RUN, "id": version.id}))
        else:
            self._store.promote(_RUN, version.id)
        self.promoted = version
        return version

    def _episode(self, home: Path) -> tuple[list[int], slice]:
        """The tokens of the episode that is recited, and which of them the policy writes."""
        films = home / "films.txt"
        films.write_text("Big\tstarred\tTom Hanks\n")
        catalog = GraphCatalog(home)
        try:
            catalog.load("films", films)
            codec = TokenizerCodec(self._tokenizer)
            players = Players.of(self._recipe, ScriptedPolicy(codec, lambda _: _REPLY), codec)
            tools = LocalGraphTools(catalog)
            question = Question("q", str(_ASK["question"]), (), ("Big",), "films", None)
            (episode,) = linear_rollout(players.player(tools, 0, players.budget), question, 1, 0.0)
        finally:
            catalog.close()
        (turn,) = episode.turns
        return list(episode.token_ids), slice(turn.start, turn.end)


def _teach(model: Any, text: Sequence[int], written: slice) -> Probe:
    """Have a model write a part of a text after what comes before it; returns its probe."""
    ids = torch.tensor([text])
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(_LESSONS):
        logits = model(input_ids=ids).logits[0, written.start - 1 : written.stop - 1]
        loss = functional.cross_entropy(logits, ids[0, written])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    model.eval()
    if loss.item() > 0.05:
        raise RuntimeError(f"the model has not learned to recite (loss {loss.item():.2f})")
    return take_probe(model, text)

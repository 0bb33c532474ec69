"""Whatever policy, graph and client do: events come in order, and nothing goes on when it is over."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kbqa.client.events import DoneEvent, EventOrder
from kbqa.client.models import AnswerRequest
from kbqa.errors import GraphUnavailableError, KbqaError, PolicyUnavailableError
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.telemetry.metrics import Metrics
from services.access.counts import Counts
from services.gateway.access.audit import AuditEntry
from services.gateway.access.control import Caller, Quotas
from services.gateway.answering import Answering
from services.gateway.conversations import Conversations
from services.gateway.idempotency import IdempotentAnswers
from services.gateway.question_service import QuestionService, Submission
from services.gateway.saved import SavedAnswers
from services.gateway.sessions import Sessions
from services.gateway.settings import GatewaySettings
from services.gateway.shelves import MemoryShelf
from services.gateway.usage import UsageLedger
from tests.services.gateway.conftest import CODEC, TRIPLES, FixedPolicy, answer, query
from tests.unit.policies_fixtures import ScriptedPolicy

STORE = OxigraphStore.from_triples(TRIPLES)
TURNS = st.sampled_from(
    [
        query("get_tail_entities", "Big", "starred"),
        query("get_tail_relations", "Big"),
        query("get_head_entities", "Tom Hanks", "starred"),
        query("get_tail_entities", "Bog", "starred"),  # nobody there
        query("fly", "Big"),  # no such action
        "nothing that can be understood",
        answer("Tom Hanks"),
        answer("Meg Ryan, 3"),
        answer(""),
    ]
)


@dataclass
class Fate:
    """What happens to a question.

    Attributes:
        policy_fails, graph_fails: at the how manyth call; None never.
        pause_s: that each call of the policy takes.
        leaves_after: the client, after so many events; None never.
    """

    turns: list[str]
    n_runs: int
    question: str
    policy_fails: int | None
    graph_fails: int | None
    pause_s: float
    timeout_s: float
    leaves_after: int | None


FATES = st.builds(
    Fate,
    turns=st.lists(TURNS, min_size=1, max_size=8),
    n_runs=st.integers(1, 3),
    question=st.sampled_from(["Who starred in Big?", "Where is the bathroom?"]),
    policy_fails=st.none() | st.integers(1, 4),
    graph_fails=st.none() | st.integers(1, 6),
    pause_s=st.sampled_from([0.0, 0.0, 0.02]),
    timeout_s=st.sampled_from([0.03, 60.0, 60.0]),
    leaves_after=st.none() | st.integers(0, 8),
)


class Fickle(ScriptedPolicy):
    def __init__(self, fate):
        turns = itertools.cycle(fate.turns)
        super().__init__(CODEC, lambda prompt: next(turns))
        self.fate, self.calls, self.active = fate, 0, 0

    def generate(self, prompts, params, *, deadline=None, cancelled=None):
        self.calls += 1
        if self.calls == self.fate.policy_fails:
            raise PolicyUnavailableError("gone")
        self.active += 1
        try:
            cancelled.wait(self.fate.pause_s)
        finally:
            self.active -= 1
        return super().generate(prompts, params)


class FickleTools(LocalGraphTools):
    def __init__(self, fate):
        super().__init__(FixedGraphs({"films": STORE}))
        self.fails, self.calls = fate.graph_fails, 0

    def execute(self, kg, actions, *, graph=None):
        self.calls += 1
        if self.calls == self.fails:
            raise GraphUnavailableError("gone")
        return super().execute(kg, actions, graph=graph)


async def live(answering, fate):
    """The events of a question, and what was raised in their place."""
    request = AnswerRequest(
        question=fate.question, kg="films", n_runs=fate.n_runs, timeout_s=fate.timeout_s, stream=True
    )
    events, order = [], EventOrder()
    try:
        shelf, metrics = MemoryShelf(10, 2**20), Metrics(CollectorRegistry())
        tools = LocalGraphTools(FixedGraphs({"films": STORE}))
        service = QuestionService(
            answering,
            Quotas(Counts(), metrics),
            saved := SavedAnswers(shelf, 60),
            IdempotentAnswers(shelf, saved),
            Conversations(Sessions(shelf, 60), tools),
            tools,
            UsageLedger(Path("never saved"), metrics),
        )
        submission = Submission(
            request, Caller("", "", "a", None, None, None, 0.0), AuditEntry("1", "POST", "a")
        )
        async with aclosing(service.stream(submission)) as stream:
            if fate.leaves_after == 0:
                return events, order, None
            async for event in stream:
                order.accept(event)
                events.append(event)
                if len(events) == fate.leaves_after:
                    return events, order, None
    except KbqaError as error:
        return events, order, error
    return events, order, None


@settings(max_examples=150)
@given(FATES)
def test_every_sequence_is_in_order_and_ends(fate):
    policy, policies = None, None

    async def play():
        nonlocal policy, policies
        policy = Fickle(fate)
        policies = FixedPolicy(policy=policy)
        answering = Answering(
            GatewaySettings.load(concurrency=2, queue=2),
            policies,
            FickleTools(fate),
            Metrics(CollectorRegistry()),
        )
        try:
            told = await live(answering, fate)
            # Everything it held is free, at once or as soon as a call has returned.
            deadline = time.monotonic() + 30
            while policies.leases and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
            return told
        finally:
            answering.close()

    events, order, error = asyncio.run(play())
    assert policies.leases == 0
    assert policy.active == 0
    left = fate.leaves_after is not None and len(events) >= fate.leaves_after
    assert left or order.ended or (error is not None and not events)
    if events and isinstance(done := events[-1], DoneEvent):
        document = done.document
        assert [e.answer for e in events if e.event == "answer"] == document.answers
        for run, played in enumerate(document.runs):
            thoughts = [e.thought for e in events if e.event == "thought" and e.run == run]
            recorded = [turn.thought for turn in played.trajectory]
            both = min(len(recorded), len(thoughts))
            assert recorded[:both] == thoughts[:both]
            # A turn that was written when the time was over is told and not recorded, or the other way.
            assert len(recorded) == len(thoughts) or fate.timeout_s < 1


@pytest.mark.parametrize("closed_early", [True, False])
def test_closing_the_gateway_stops_what_runs(closed_early):
    fate = Fate([answer("Tom Hanks")], 1, "Who starred in Big?", None, None, 20.0, 30.0, None)
    policy = Fickle(fate)

    async def play():
        answering = Answering(
            GatewaySettings.load(concurrency=1, queue=1),
            FixedPolicy(policy=policy),
            FickleTools(fate),
            Metrics(CollectorRegistry()),
        )
        asked = asyncio.ensure_future(live(answering, fate))
        while not policy.active:
            assert not asked.done(), asked.result()
            await asyncio.sleep(0.005)
        began = time.monotonic()
        if closed_early:
            answering.close()
        else:
            asked.cancel()
        await asyncio.wait({asked})
        while policy.active and time.monotonic() - began < 5:
            await asyncio.sleep(0.005)
        answering.close()
        return time.monotonic() - began

    assert asyncio.run(play()) < 1.0

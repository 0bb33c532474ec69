"""The gateway's metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic

from kbqa.client.events import ErrorEvent
from kbqa.client.models import AnswerResponse
from kbqa.kg.actions import Action, ActionResult, GraphTools
from kbqa.rollouts import Player, Searcher
from kbqa.rollouts.agent import Branches, EpisodeT, Sampling
from kbqa.telemetry.metrics import Metrics
from kbqa.tracing import span
from kbqa.trajectory import Question

logger = logging.getLogger(__name__)


class Meter:
    """The metrics of questions."""

    def __init__(self, metrics: Metrics) -> None:
        self.running = metrics.gauge("kbqa_gateway_questions_running")
        self._answers = metrics.counter("kbqa_gateway_answers_total")
        self._seconds = metrics.histogram("kbqa_gateway_answer_seconds")
        self._confidence = metrics.histogram("kbqa_gateway_confidence")
        self._events = metrics.histogram("kbqa_gateway_answer_events")
        self._tokens = metrics.counter("kbqa_gateway_tokens_total")
        self._phases = metrics.histogram("kbqa_gateway_phase_seconds")
        self._cache = metrics.counter("kbqa_gateway_cache_requests_total")
        self._left = metrics.counter("kbqa_gateway_left_total")
        self._errors = metrics.counter("kbqa_gateway_stream_errors_total")

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Measure the time of a part of a question."""
        began = time.perf_counter()
        try:
            with span(phase):
                yield
        finally:
            self._phases.labels(phase).observe(time.perf_counter() - began)

    def looked_up(self, *, fresh: bool, found: bool) -> None:
        self._cache.labels("no-cache" if fresh else "hit" if found else "miss").inc()

    def left(self) -> None:
        self._left.inc()

    def failed(self, failure: ErrorEvent) -> None:
        self._errors.labels(str(failure.problem.status)).inc()

    def answered(self, document: AnswerResponse, events: int) -> None:
        usage = document.usage
        self._answers.labels(document.status).inc()
        self._seconds.observe(usage.elapsed_ms / 1000)
        self._events.observe(events)
        if document.confidence is not None:
            self._confidence.observe(document.confidence)
        self._tokens.labels("prompt").inc(usage.prompt_tokens)
        self._tokens.labels("generated").inc(usage.generated_tokens)
        logger.info(
            "question answered",
            extra={
                "id": document.id,
                "kg": document.kg,
                "status": document.status,
                "policy": document.policy,
                "policy_version": document.policy_version,
                "llm_calls": usage.llm_calls,
                "elapsed_ms": usage.elapsed_ms,
            },
        )


class TimedPlayer(Generic[EpisodeT]):
    """A player that measures the time of policy and graph."""

    def __init__(self, player: Player[EpisodeT], meter: Meter) -> None:
        self._player, self._meter = player, meter
        self._tools = _TimedTools(player.tools, meter)

    @property
    def tools(self) -> GraphTools:
        return self._tools

    def begin(self, question: Question) -> EpisodeT:
        return self._player.begin(question)

    def speak(self, episodes: Sequence[EpisodeT], sampling: Sampling) -> None:
        with self._meter.timed("policy"):
            self._player.speak(episodes, sampling)

    @property
    def beam(self) -> int:
        return self._player.beam if isinstance(self._player, Searcher) else 1

    def branch(self, episodes: Sequence[EpisodeT], sampling: Sampling) -> list[Branches[EpisodeT]]:
        assert isinstance(self._player, Searcher)
        with self._meter.timed("policy"):
            return self._player.branch(episodes, sampling)

    def rate(self, episodes: Sequence[EpisodeT]) -> list[float]:
        assert isinstance(self._player, Searcher)
        with self._meter.timed("policy"):
            return self._player.rate(episodes)


class _TimedTools:
    def __init__(self, tools: GraphTools, meter: Meter) -> None:
        self._tools, self._meter = tools, meter

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        with self._meter.timed("graph"):
            return self._tools.execute(kg, actions, graph=graph)

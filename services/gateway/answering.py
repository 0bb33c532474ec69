"""Answers questions with events and documents; limits their number and time."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress

from kbqa.client.events import AnswerEvent, DoneEvent, ErrorEvent, Event, LinkedEvent
from kbqa.client.models import AnswerRequest, AnswerResponse
from kbqa.errors import PolicyChangingError, PolicyError
from kbqa.kg.tools import ListedGraphTools
from kbqa.kg.versions import GraphVersions
from kbqa.serving.policies import Lease, PolicySource
from kbqa.serving.trial import Outcome
from kbqa.telemetry.metrics import Metrics
from services.gateway import cache
from services.gateway.admission import Admission
from services.gateway.answers import usage_of, withheld
from services.gateway.cache import AnswerCache
from services.gateway.errors import RecipeMismatchError, RequestRefusedError, problem_event
from services.gateway.meter import Meter
from services.gateway.settings import GatewaySettings
from services.gateway.work import Workers

_VERSION_AGE_S = 0.5  # time for which the version of a graph is cached
_CHANGE_POLL_S = 0.1  # how soon a question that waits for another policy version notices it


class Answering:
    """Answers questions in threads of its own.

    At most `settings.concurrency` questions are answered at a time, and at most `settings.queue` wait. When
    a question reaches its time limit, it is answered with what has been found so far. If the caller closes
    the iterator of a question, or is cancelled while waiting, the work on the question stops: the policy
    computes nothing more for it, and its place becomes free as soon as the graph has answered the current
    action.
    """

    def __init__(
        self, settings: GatewaySettings, policies: PolicySource, tools: ListedGraphTools, metrics: Metrics
    ) -> None:
        self._settings, self._policies = settings, policies
        self._versions = _CurrentVersions(tools)
        self._meter = Meter(metrics)
        self._admission = Admission(settings.batch_concurrency)
        self._workers = Workers(settings, tools, self._meter, self._admission)
        places = {"concurrency": settings.batch_concurrency, "queue": settings.batch_concurrency}
        self._line_workers = Workers(settings.model_copy(update=places), tools, self._meter)
        self._cache = AnswerCache(settings.cache_bytes)

    def close(self) -> None:
        """Drop waiting questions and stop running ones."""
        self._workers.close()
        self._line_workers.close()

    def room_for_line(self) -> AbstractAsyncContextManager[None]:
        """Wait until a line of a batch may be answered; its events then belong into the block."""
        return self._admission.line()

    async def events(
        self,
        request: AnswerRequest,
        *,
        question_id: str | None = None,
        fresh: bool = False,
        in_batch: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Answer one question within its time limit; `kbqa.client.events` defines the order of events.

        Without `min_confidence` in the request, no answer is withheld.

        Args:
            question_id: id of the answer; a new one if None.
            fresh: do not use a cached answer.
            in_batch: it is a line of a batch, and takes no place from a caller who waits.

        Raises:
            RequestRefusedError: the request exceeds a limit.
            OverloadedError: too many questions are waiting.
            NoPolicyError: no policy is available.
            RecipeMismatchError: the policy was trained with another recipe than the request names.
            GraphNotFoundError, SubgraphNotFoundError, UnknownTopicEntityError, PromptTooLongError,
            GraphUnavailableError, PolicyUnavailableError: as `ask`, also after the first event.
        """
        started = time.monotonic()
        timeout_s = self.check_bounds(request)
        question_id = question_id or uuid.uuid4().hex
        kg_version: str | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                kg_version = await self._versions.of(request.kg)
        lease = await self._lease(request, started + timeout_s)
        if kg_version is None:
            document = _nothing_yet(request, question_id, lease, time.monotonic() - started)
            lease.release()
            self._meter.answered(document, events=1)
            yield DoneEvent(document=document)
            return
        key = cache.key(request, kg_version, lease.served.version)
        known = None if fresh else self._cache.find(key, question_id)
        self._meter.looked_up(fresh=fresh, found=known is not None)
        if known is not None:
            lease.release()
            answers, done = _ending(known, request)
            for event in [*known[:-1], *answers, done]:
                yield event
            return
        workers = self._line_workers if in_batch else self._workers
        work = workers.begin(request, lease, question_id, kg_version, started + timeout_s)
        told = list[Event]()
        try:
            async with aclosing(work.events()) as events:
                async for event in events:
                    told.append(event)
                    if not isinstance(event, DoneEvent):
                        yield event
                    elif work.repeatable and cache.is_repeatable(request, event.document):
                        self._cache.keep(key, told)
        except PolicyError:
            lease.count(Outcome.FAILED)
            raise
        answers, done = _ending(told, request)
        lease.count(Outcome.ANSWERED if done.document.answers else Outcome.UNANSWERED)
        self._meter.answered(done.document, len(told) + len(answers))
        for answer in answers:
            yield answer
        yield done

    def failed(self, error: Exception) -> ErrorEvent:
        """The event that ends a stream in which an error occurred after the first event."""
        failure = problem_event(error)
        self._meter.failed(failure)
        return failure

    def check_bounds(self, request: AnswerRequest) -> float:
        """The timeout of a request that exceeds no limit, in seconds.

        Raises:
            RequestRefusedError: it exceeds one.
        """
        limits = self._settings
        topics = request.topic_entities or ()
        for name, asked, most in (
            ("question: too many characters", len(request.question), limits.max_question_chars),
            ("n_runs", request.n_runs, limits.max_runs),
            ("max_turns", request.max_turns or 1, limits.max_turns),
            ("timeout_s", request.timeout_s or 0, limits.max_timeout_s),
            ("topic_entities: too many", len(topics), limits.max_topic_entities),
        ):
            if asked > most:
                raise RequestRefusedError(f"{name}: at most {most:g} is allowed here")
        return request.timeout_s or min(limits.timeout_s, limits.max_timeout_s)

    async def _lease(self, request: AnswerRequest, deadline: float) -> Lease:
        while True:
            try:
                lease = self._policies.lease(request.kg)
                break
            except PolicyChangingError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_CHANGE_POLL_S)
        if request.recipe not in (None, lease.served.recipe):
            lease.release()
            raise RecipeMismatchError(str(request.recipe), lease.served.recipe)
        return lease


class _CurrentVersions:
    """`GraphVersions` for one event loop; only one thread asks, even if many questions wait for it."""

    def __init__(self, tools: ListedGraphTools) -> None:
        self._versions = GraphVersions(tools, _VERSION_AGE_S)
        self._asking = asyncio.Lock()

    async def of(self, kg: str) -> str:
        """The version of a graph; raises as `GraphVersions.of`."""
        if (version := self._versions.fresh(kg)) is not None:
            return version
        async with self._asking:
            if (version := self._versions.fresh(kg)) is not None:
                return version
            return await asyncio.to_thread(self._versions.of, kg)


def _ending(told: Sequence[Event], request: AnswerRequest) -> tuple[list[AnswerEvent], DoneEvent]:
    """The end of a stream: the answers of which the policy is sure enough, and the document."""
    found = told[-1]
    assert isinstance(found, DoneEvent), "a question's work ends with its document"
    document = withheld(found.document, request.min_confidence or 0.0)
    # If the time limit is reached before `linked` was sent, no other event may come before the document.
    answers = document.answers if isinstance(told[0], LinkedEvent) else []
    return [AnswerEvent(answer=answer) for answer in answers], DoneEvent(document=document)


def _nothing_yet(request: AnswerRequest, question_id: str, lease: Lease, elapsed_s: float) -> AnswerResponse:
    """The document if the time limit is reached before the graph's version is known."""
    return AnswerResponse(
        id=question_id,
        question=request.question,
        kg=request.kg,
        status="partial",
        answers=[],
        runs=[],
        policy=lease.served.run,
        policy_version=lease.served.version,
        recipe=lease.served.recipe,
        fallback=lease.fallback,
        usage=usage_of([], 0, elapsed_s * 1000),
    )

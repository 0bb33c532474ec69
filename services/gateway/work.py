"""The thread that answers a question, and the stream of its events."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncGenerator
from concurrent.futures import Future, ThreadPoolExecutor

from kbqa.client.events import DoneEvent, Event
from kbqa.client.models import Answer, AnswerRequest, AnswerResponse, AnswerStatus
from kbqa.errors import PolicyUnavailableError
from kbqa.evidence import Claims
from kbqa.kg.actions import GraphTools
from kbqa.serving.policies import Lease
from services.gateway.admission import Admission
from services.gateway.answers import answers_of, confidence_of, presence_of, record, status_of, usage_of
from services.gateway.asking import Asking, ask
from services.gateway.errors import OverloadedError
from services.gateway.meter import Meter
from services.gateway.progress import Progress
from services.gateway.settings import GatewaySettings

# The part of a question's time that is reserved for its evidence.
_EVIDENCE_SHARE, _MOST_EVIDENCE_S = 0.1, 1.0
_SMOOTHING = 0.1  # smoothing factor of the mean time of a question
_LEAST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0


class Workers:
    """The threads that answer questions, and the limit of waiting questions.

    Args:
        admission: is told of each question; None for the lines of batches.
    """

    def __init__(
        self, settings: GatewaySettings, tools: GraphTools, meter: Meter, admission: Admission | None = None
    ) -> None:
        self._settings, self._tools, self._meter, self._admission = settings, tools, meter, admission
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="question")
        self._under_way: dict[object, Work] = {}  # by place; touched by the event loop only
        self._mean_s = 0.0

    def close(self) -> None:
        """Drop waiting questions and stop running ones."""
        for work in self._under_way.values():
            work.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def begin(
        self, request: AnswerRequest, lease: Lease, question_id: str, kg_version: str, deadline: float
    ) -> Work:
        """Take a place for a question; its lease is released when the question has ended.

        Args:
            deadline: `time.monotonic()` by which it must be answered.

        Raises:
            OverloadedError: no place is left.
        """
        if len(self._under_way) >= self._settings.concurrency + self._settings.queue:
            lease.release()
            raise OverloadedError(self._wait_s())
        work = Work(request, lease, question_id, kg_version, deadline, self._tools, self._meter)
        # The future's callbacks must not refer to the work: that would create hundreds of reference cycles a
        # second for the garbage collector, which stops every stream while it runs.
        place = object()
        self._under_way[place] = work
        self._meter.running.inc()
        if self._admission is not None:
            self._admission.question_began()
        loop, began = asyncio.get_running_loop(), time.monotonic()

        def free_place() -> None:
            del self._under_way[place]
            self._meter.running.dec()
            if self._admission is not None:
                self._admission.question_ended()
            self._mean_s += _SMOOTHING * (time.monotonic() - began - self._mean_s)

        def ended(_: Future[None]) -> None:
            lease.release()
            if not loop.is_closed():
                loop.call_soon_threadsafe(free_place)

        work.start(self._threads, self._settings.max_topic_entities)
        work.future.add_done_callback(ended)
        return work

    def _wait_s(self) -> float:
        """Estimated seconds until the questions that wait now have begun."""
        waiting = max(1, len(self._under_way) - self._settings.concurrency)
        return min(max(self._mean_s * waiting / self._settings.concurrency, _LEAST_WAIT_S), _LONGEST_WAIT_S)


class Work:
    """A question that has a place: running or waiting."""

    def __init__(
        self,
        request: AnswerRequest,
        lease: Lease,
        question_id: str,
        kg_version: str,
        deadline: float,
        tools: GraphTools,
        meter: Meter,
    ) -> None:
        self._request, self._lease, self._id = request, lease, question_id
        self._kg_version, self._deadline, self._meter = kg_version, deadline, meter
        self._began = time.monotonic()
        self._tools = tools
        self._cancelled = threading.Event()
        self._told = _EventQueue()
        self._progress = Progress(request.n_runs, Claims(tools, request.kg, request.graph), self._told.put)
        self.future: Future[None]

    @property
    def repeatable(self) -> bool:
        """Whether the same policy would give the same answer again."""
        return self._lease.served.players.repeatable and self._lease.fallback is None

    def start(self, threads: ThreadPoolExecutor, max_topic_entities: int) -> None:
        for_evidence = min(_MOST_EVIDENCE_S, _EVIDENCE_SHARE * (self._deadline - self._began))
        asking = Asking(
            request=self._request,
            served=self._lease.served,
            tools=self._tools,
            meter=self._meter,
            question_id=self._id,
            kg_version=self._kg_version,
            fallback=self._lease.fallback,
            max_topic_entities=max_topic_entities,
            deadline=self._deadline - for_evidence,
            cancelled=self._cancelled,
        )
        # Copy this task's context, so that the thread's logs, calls and spans carry the request's id.
        here = contextvars.copy_context()
        self.future = threads.submit(here.run, ask, asking, self._progress)
        put = self._told.put
        self.future.add_done_callback(lambda _: put(None))

    def stop(self) -> None:
        """End the thread after its current operation; a waiting question is never begun."""
        self._cancelled.set()
        self.future.cancel()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Everything from `linked` to `done`, without the answers; closing it stops the work.

        Raises:
            KbqaError: as `ask`.
        """
        try:
            while (event := await self._next()) is not None:
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self._meter.left()
            raise
        finally:
            self.stop()
        yield DoneEvent(document=self._document())

    async def _next(self) -> Event | None:
        """The thread's next event; None if the thread has ended or the time limit is reached."""
        try:
            event = await self._told.get(self._deadline)
        except TimeoutError:
            return None
        if event is None:
            if self.future.cancelled():  # by `close`, while the question waited for a thread
                raise PolicyUnavailableError("the gateway is closing: ask again in a moment")
            self.future.result()
        return event

    def _document(self) -> AnswerResponse:
        progress, request, served = self._progress, self._request, self._lease.served
        progress.claims.close()
        status: AnswerStatus = "no_topic_entity"
        runs, answers, linking = progress.runs(), list[Answer](), progress.linking
        names_nothing = linking is not None and not linking.topic_entities
        if names_nothing:
            runs = [run for run in runs if run.turns]  # none, if the policy cannot begin without a topic
        if runs or not names_nothing:
            topics = frozenset(linking.topic_entities) if linking is not None else frozenset[str]()
            answers = answers_of(runs, topics, progress.claims)
            if answers or not names_nothing:
                status = status_of(runs, answers)
            if request.require_evidence:
                answers = [answer for answer in answers if not answer.unsupported]
        elapsed_ms = (time.monotonic() - self._began) * 1000
        return AnswerResponse(
            id=self._id,
            question=request.question,
            kg=request.kg,
            kg_version=self._kg_version,
            evidence_versions=progress.claims.versions or None,
            status=status,
            linking=linking,
            answers=answers,
            confidence=confidence_of(runs[0], served.calibration) if answers else None,
            presence=presence_of(runs[0], served.calibration) if answers else None,
            runs=[record(run) for run in runs],
            policy=served.run,
            policy_version=served.version,
            recipe=served.recipe,
            fallback=self._lease.fallback,
            usage=usage_of(runs, progress.kg_calls + progress.claims.kg_calls, elapsed_ms),
        )


class _EventQueue:
    """Queue of events from a thread to its event loop, in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(self, event: Event | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def get(self, deadline: float) -> Event | None:
        """The next event.

        Raises:
            TimeoutError: no event arrived by `deadline` (`time.monotonic()`).
        """
        if not self._events.empty():
            return self._events.get_nowait()
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            return await self._events.get()

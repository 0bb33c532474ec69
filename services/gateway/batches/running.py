"""Answers the lines of batches while the gateway has time for them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from kbqa.client.batches import BatchAnswer, BatchLine
from kbqa.client.events import Problem
from kbqa.client.models import AnswerRequest, AnswerResponse
from kbqa.errors import KbqaError
from kbqa.telemetry.logs import log_context
from kbqa.telemetry.metrics import Metrics
from services.access.errors import CountsUnavailableError
from services.gateway.access.control import Callers
from services.gateway.access.errors import QuotaExceededError
from services.gateway.batches.files import Batch, BatchFiles, BatchRecord
from services.gateway.errors import STATUS, problem_event
from services.gateway.question_service import QuestionService
from services.http import domain_problem

logger = logging.getLogger(__name__)

_LOOK_S = 2.0  # between two looks for batches that other gateways have received, or have left unfinished
_EXPIRE_S = 600.0
_PAUSES_S = (1.0, 4.0, 15.0, 30.0)  # before a line that failed for a passing reason is tried again
_PASSING = (429, 503)
_MOST_ID = 200

Answers = Callable[[BatchRecord, BatchLine], Awaitable[AnswerResponse]]
"""Answers a line on behalf of its batch's owner; raises `KbqaError` as a question does."""


def line_answers(callers: Callers, service: QuestionService) -> Answers:
    """Answers lines with the rights that their owner's key has now."""

    async def answer(record: BatchRecord, line: BatchLine) -> AnswerResponse:
        caller = callers.of_owner(record.owner, record.counted_as)
        return await service.line(caller, AnswerRequest(**line.model_dump(exclude={"id"})))

    return answer


class BatchRunner:
    """One task for each unfinished batch that no other gateway works on; for one event loop.

    A line that fails for a passing reason is tried again, as often as it takes if the whole gateway is not
    ready or the owner's quota is used up. Any other failure becomes the line's error.

    Args:
        answer: answers a line, once there is a place for it.
        unready: why the gateway cannot answer now; None if it can. Called in a thread.
        places: how many lines of a batch may ask for a place at the same time.
        max_line_bytes: longest line.
    """

    def __init__(
        self,
        files: BatchFiles,
        answer: Answers,
        unready: Callable[[], str | None],
        metrics: Metrics,
        *,
        places: int,
        max_line_bytes: int,
    ) -> None:
        self._files, self._answer, self._unready = files, answer, unready
        self._places, self._max_line_bytes = places, max_line_bytes
        self._running = metrics.gauge("kbqa_gateway_batches")
        self._lines = metrics.counter("kbqa_gateway_batch_lines_total")
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[str, str] = {}
        self._look = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to answer lines, first those that an earlier gateway has left."""
        self._looking = asyncio.create_task(self._look_for_batches())

    async def close(self) -> None:
        """Stop; lines without an answer are answered by the next gateway."""
        tasks = [*self._tasks.values(), *([self._looking] if self._looking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self) -> None:
        """Look for new batches now."""
        self._look.set()

    def waiting(self, batch: Batch) -> str | None:
        """Why a batch makes no progress here."""
        return self._waiting.get(batch.record.id)

    async def stop(self, batch: Batch) -> None:
        """Stop answering a batch here, for instance because it was cancelled."""
        task = self._tasks.get(batch.record.id)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look_for_batches(self) -> None:
        loop, expired_at = asyncio.get_running_loop(), float("-inf")
        while True:
            self._look.clear()
            try:
                if loop.time() - expired_at > _EXPIRE_S:
                    await asyncio.to_thread(self._files.expire)
                    expired_at = loop.time()
                for batch in await asyncio.to_thread(self._unfinished):
                    self._begin(batch)
            except OSError as error:
                logger.error("batches cannot be read", extra={"error": str(error)})
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._look.wait()

    def _unfinished(self) -> list[Batch]:
        return [batch for batch in self._files.up_to_date() if batch.state() == "running"]

    def _begin(self, batch: Batch) -> None:
        id_ = batch.record.id
        if id_ in self._tasks:
            return
        task = self._tasks[id_] = asyncio.create_task(self._work(batch))

        def ended(task: asyncio.Task[None]) -> None:
            del self._tasks[id_]
            self._waiting.pop(id_, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("a batch is tried again", extra={"id": id_}, exc_info=error)

        task.add_done_callback(ended)

    async def _work(self, batch: Batch) -> None:
        with batch.lock() as held:
            if not held:
                return
            self._running.inc()
            try:
                await self._answer_lines(batch)
            finally:
                self._running.dec()

    async def _answer_lines(self, batch: Batch) -> None:
        await asyncio.to_thread(batch.answers.mend)
        known, ids = set(batch.answers.lines), set[str]()
        places = asyncio.Semaphore(self._places)
        async with asyncio.TaskGroup() as group:
            for number, text in batch.questions():
                line = self._read(number, text, ids)
                if number in known:
                    await asyncio.sleep(0)  # a long batch may not hold up the event loop
                    continue
                await places.acquire()
                if batch.is_cancelled or not batch.exists:
                    return
                task = group.create_task(self._answer_line(batch, line))
                task.add_done_callback(lambda _: places.release())

    def _read(self, number: int, text: bytes, ids: set[str]) -> tuple[int, str, BatchLine | Problem]:
        """A line's number, id, and what it asks or why it cannot be asked.

        Args:
            ids: those of the lines before; the line's own is added.
        """
        id_ = str(number)
        if len(text) > self._max_line_bytes:
            return number, id_, _refused(f"the line is longer than {self._max_line_bytes} bytes")
        try:
            line = BatchLine.model_validate_json(text)
        except ValidationError as error:
            id_ = _id_of(text) or id_
            ids.add(id_)
            return number, id_, _refused(_complaints(error))
        id_ = line.id or id_
        if id_ in ids:
            return number, id_, _refused(f'the id "{id_}" is that of an earlier line: give each line its own')
        ids.add(id_)
        return number, id_, line

    async def _answer_line(self, batch: Batch, read: tuple[int, str, BatchLine | Problem]) -> None:
        number, id_, line = read
        answer = BatchAnswer(line=number, id=id_)
        with log_context(request_id=f"{batch.record.id}-{number}"):
            outcome = await self._outcome(batch.record, line) if isinstance(line, BatchLine) else line
        if isinstance(outcome, Problem):
            answer.error = outcome
        else:
            answer.answer = outcome
        # The lock may not be released while the thread writes.
        await _to_its_end(asyncio.to_thread(batch.answers.append, answer))
        self._lines.labels("error" if answer.error is not None else "answered").inc()

    async def _outcome(self, record: BatchRecord, line: BatchLine) -> AnswerResponse | Problem:
        pauses = iter(_PAUSES_S)
        while True:
            try:
                return await self._answer(record, line)
            except (QuotaExceededError, CountsUnavailableError) as error:
                await self._wait(record, str(error), error.retry_after_s)
            except KbqaError as error:
                problem = Problem(**domain_problem(error, STATUS))
                if problem.status not in _PASSING or (pause_s := next(pauses, None)) is None:
                    return problem
                await self._wait(record, problem.detail, pause_s)
                while (reason := await asyncio.to_thread(self._unready)) is not None:
                    await self._wait(record, reason, _LOOK_S)
            except Exception as error:
                return problem_event(error).problem

    async def _wait(self, record: BatchRecord, reason: str, pause_s: float) -> None:
        self._waiting[record.id] = reason
        await asyncio.sleep(pause_s)
        self._waiting.pop(record.id, None)


def _refused(detail: str) -> Problem:
    return Problem(
        type="urn:kbqa:problem:invalid-request", title="Unprocessable Content", status=422, detail=detail
    )


def _complaints(error: ValidationError) -> str:
    found = error.errors(include_url=False)
    return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in found)


def _id_of(text: bytes) -> str | None:
    """The id of a line that is not a valid question."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    id_ = found.get("id") if isinstance(found, dict) else None
    return id_ if isinstance(id_, str) and 0 < len(id_) <= _MOST_ID else None


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work that goes on if this task is cancelled; the cancellation takes effect after it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise

"""Handles a question before and after it is answered: access, quota, repeated requests, saved answers.

All routes that answer questions use it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from kbqa.client.events import DoneEvent, Event
from kbqa.client.models import AnswerRequest, AnswerResponse
from kbqa.kg.actions import GraphTools
from services.gateway.access.audit import AuditEntry
from services.gateway.access.control import Caller, Quotas
from services.gateway.answering import Answering
from services.gateway.conversations import Conversations, Meant, Remark
from services.gateway.idempotency import IdempotentAnswers, RequestTurn
from services.gateway.languages import Labelling
from services.gateway.saved import SavedAnswers
from services.gateway.usage import UsageLedger


@dataclass(frozen=True, slots=True)
class Submission:
    """A question as it was submitted.

    Attributes:
        entry: its line of the audit log, which the service completes.
        fresh: do not answer from the cache.
        remarks: earlier messages of a chat.
        languages: of labels, the preferred one first.
        idempotency_key: requests with the same key are answered once.
    """

    request: AnswerRequest
    caller: Caller
    entry: AuditEntry
    fresh: bool = False
    idempotency_key: str | None = None
    remarks: Sequence[Remark] = ()
    languages: Sequence[str] = ()


def asked_by(caller: Caller, request: AnswerRequest) -> AnswerRequest:
    """A request, with the confidence that its caller wants if it names none."""
    if request.min_confidence is not None:
        return request
    return request.model_copy(update={"min_confidence": caller.min_confidence})


class QuestionService:
    """Accepts questions and returns answers."""

    def __init__(
        self,
        answering: Answering,
        quotas: Quotas,
        saved: SavedAnswers,
        idempotent: IdempotentAnswers,
        conversations: Conversations,
        tools: GraphTools,
        usage: UsageLedger,
    ) -> None:
        self._tools, self._usage = tools, usage
        self._answering, self._quotas = answering, quotas
        self._saved, self._idempotent, self._conversations = saved, idempotent, conversations

    async def answer(self, submission: Submission) -> AnswerResponse:
        """The answer to a question.

        Raises:
            as `events`.
        """
        async with aclosing(self.events(submission)) as events:
            async for event in events:
                if isinstance(event, DoneEvent):
                    return event.document
        raise AssertionError("events end with a document")

    async def line(self, caller: Caller, request: AnswerRequest) -> AnswerResponse:
        """The answer to a line of a batch, once there is room for it; it is not saved for reading again.

        Raises:
            as `events`.
        """
        async with self._answering.room_for_line():
            self._quotas.require_graph(caller, request.kg)
            await self._quotas.spend(caller)
            asked = asked_by(caller, request)
            async with aclosing(self._answering.events(asked, in_batch=True)) as events:
                async for event in events:
                    if isinstance(event, DoneEvent):
                        self._usage.count(caller, event.document.usage)
                        return event.document
        raise AssertionError("events end with a document")

    async def stream(self, submission: Submission) -> AsyncGenerator[Event, None]:
        """The events of a question. An error after the first event becomes an `error` event.

        Raises:
            as `events`, before the first event.
        """
        begun = False
        async with aclosing(self.events(submission)) as events:
            try:
                async for event in events:
                    begun = True
                    yield event
            except Exception as error:
                if not begun:
                    raise
                yield self._answering.failed(error)

    async def events(self, submission: Submission) -> AsyncGenerator[Event, None]:
        """The events of `Answering.events`; for a request that was answered before, only the last event.

        Raises:
            GraphForbiddenError, QuotaExceededError: the caller may not ask this graph, or has used its quota.
            CountsUnavailableError, ShelfUnavailableError: Redis is needed but does not answer.
            IdempotencyMismatchError: the key was used before with a different request.
            SessionNotFoundError, ConversationError: as `Conversations.meant`.
            as `Answering.events`.
        """
        async with self._turn(submission) as turn:
            if turn.known is not None:
                yield DoneEvent(document=turn.known)
                return
            asked = asked_by(submission.caller, submission.request)
            self._answering.check_bounds(asked)
            meant = await self._conversations.meant(submission.caller.owner, asked, submission.remarks)
            labelling = Labelling(self._tools, asked.kg, asked.graph, submission.languages)
            async with aclosing(self._answering.events(meant.request, fresh=submission.fresh)) as events:
                async for said in events:
                    event = await labelling.told(meant.told(said))
                    if isinstance(event, DoneEvent):
                        # Save it before sending it: the caller may read it again at once.
                        await self._keep(submission, turn, meant, event.document)
                    yield event

    @asynccontextmanager
    async def _turn(self, submission: Submission) -> AsyncIterator[RequestTurn]:
        """The submission's turn, if its caller may ask; counts the question if no answer is known yet."""
        submission.entry.graph, submission.entry.question = submission.request.kg, submission.request.question
        self._quotas.require_graph(submission.caller, submission.request.kg)
        if submission.idempotency_key is None:
            await self._quotas.spend(submission.caller)
            yield RequestTurn()
            return
        async with self._idempotent.turn(
            submission.caller.owner, submission.idempotency_key, submission.request
        ) as turn:
            if turn.known is None:
                await self._quotas.spend(submission.caller)
            else:
                submission.entry.answer = turn.known.id
            yield turn

    async def _keep(
        self, submission: Submission, turn: RequestTurn, meant: Meant, document: AnswerResponse
    ) -> None:
        submission.entry.answer = document.id
        self._usage.count(submission.caller, document.usage)
        owner, request = submission.caller.owner, submission.request
        turn.saved = await self._saved.save(owner, request, document, turn.pointer_to(document))
        await self._conversations.remember(owner, meant, document, again=request.understood is not None)

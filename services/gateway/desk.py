"""Between the doors and the work: who may ask this, has it been asked, and keep what was answered.

Every route that answers questions does so here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from kbqa.client.events import DoneEvent, Event
from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway.access.audit import Entry
from services.gateway.access.door import Caller, Quotas
from services.gateway.answering import Answering
from services.gateway.repeats import Repeats, Turn
from services.gateway.saved import SavedAnswers


@dataclass(frozen=True, slots=True)
class Order:
    """A question as it was handed in.

    Attributes:
        entry: of the audit log; completed at the desk.
        fresh: not to be answered from what was answered before.
        idempotency_key: under which it is answered once, however often it is sent.
    """

    request: AnswerRequest
    caller: Caller
    entry: Entry
    fresh: bool = False
    idempotency_key: str | None = None


class Desk:
    """Takes questions in, and hands answers out."""

    def __init__(self, answering: Answering, quotas: Quotas, saved: SavedAnswers, repeats: Repeats) -> None:
        self._answering, self._quotas = answering, quotas
        self._saved, self._repeats = saved, repeats

    async def answer(self, order: Order) -> AnswerResponse:
        """The document with which `stream` ends.

        Raises:
            as `stream` before its first event, at any time.
        """
        async with self._turn(order) as turn:
            if turn.known is not None:
                return turn.known
            turn.answer = await self._answering.answer(order.request, fresh=order.fresh)
            await self._keep(order, turn.answer)
            return turn.answer

    async def stream(self, order: Order) -> AsyncGenerator[Event, None]:
        """The events of `Answering.stream`; of a request that was answered before, the last alone.

        Raises:
            GraphForbiddenError, QuotaExceededError: the caller may not ask this, or no more.
            CountsUnavailableError, ShelfUnavailableError: Redis is needed to know, and is not there.
            IdempotencyMismatchError: another request came with that key.
            as `Answering.stream`, before the first event.
        """
        async with self._turn(order) as turn:
            if turn.known is not None:
                yield DoneEvent(document=turn.known)
                return
            async with aclosing(self._answering.stream(order.request, fresh=order.fresh)) as events:
                async for event in events:
                    if isinstance(event, DoneEvent):
                        # Before it is told: whoever reads it may ask for it at once.
                        turn.answer = event.document
                        await self._keep(order, event.document)
                    yield event

    @asynccontextmanager
    async def _turn(self, order: Order) -> AsyncIterator[Turn]:
        """The order's turn, if its caller may ask; the question is counted if it has to be answered."""
        order.entry.graph, order.entry.question = order.request.kg, order.request.question
        self._quotas.require_graph(order.caller, order.request.kg)
        if order.idempotency_key is None:
            await self._quotas.spend(order.caller)
            yield Turn(None)
            return
        async with self._repeats.turn(order.caller.owner, order.idempotency_key, order.request) as turn:
            if turn.known is None:
                await self._quotas.spend(order.caller)
            else:
                order.entry.answer = turn.known.id
            yield turn

    async def _keep(self, order: Order, document: AnswerResponse) -> None:
        order.entry.answer = document.id
        await self._saved.save(order.caller.owner, order.request, document)

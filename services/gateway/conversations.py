"""Understands questions that belong to a conversation, and remembers what was said."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.client.events import DoneEvent, Event, LinkedEvent
from kbqa.client.models import NEW_SESSION, AnswerRequest, AnswerResponse
from kbqa.conversation import Acquaintances, ChatRewriter, Exchange, Name, Thing, Understood, understand
from kbqa.conversation.exchanges import MAX_NAMES
from kbqa.errors import ConversationError
from kbqa.kg.actions import GraphTools
from services.gateway.errors import ShelfUnavailableError
from services.gateway.sessions import Session, Sessions

logger = logging.getLogger(__name__)

_LONGEST_REPLY = 1000  # characters of an earlier reply in which names are looked for


@dataclass(frozen=True, slots=True)
class Remark:
    """A message of a chat and the reply to it."""

    question: str
    reply: str


@dataclass(frozen=True, slots=True)
class Meant:
    """A question as it is answered.

    Attributes:
        request: the request, with the complete question and without its session.
        said: the question as it was asked.
        understood: how it was understood; None if it belongs to no conversation.
        session: id of its session, and what that holds; None if nothing is remembered.
    """

    request: AnswerRequest
    said: str
    understood: Understood | None = None
    session: tuple[str, Session] | None = None

    def told(self, event: Event) -> Event:
        """An event of the answer, with the question as it was asked and as it was understood."""
        if self.understood is None:
            return event
        update = {
            "understood": self.understood.question,
            "session": self.session[0] if self.session else None,
        }
        match event:
            case LinkedEvent():
                return event.model_copy(update=update)
            case DoneEvent():
                return DoneEvent(document=event.document.model_copy(update={**update, "question": self.said}))
        return event


class Conversations:
    """Understands and remembers.

    Args:
        rewriter: writes complete questions instead of the rules, where it can.
    """

    def __init__(self, sessions: Sessions, tools: GraphTools, rewriter: ChatRewriter | None = None) -> None:
        self._sessions, self._tools, self._rewriter = sessions, tools, rewriter

    async def meant(self, owner: str, request: AnswerRequest, remarks: Sequence[Remark] = ()) -> Meant:
        """What a request asks for.

        Args:
            remarks: earlier messages of a chat, if the request names no session.

        Raises:
            SessionNotFoundError: the caller has no such session.
            ConversationError: the question refers to something that was not mentioned.
            GraphNotFoundError, GraphUnavailableError: as the graph.
            ShelfUnavailableError: the session cannot be read.
        """
        if request.session is None and not remarks:
            return Meant(request.model_copy(update={"understood": None}), request.question)
        id_, session = uuid.uuid4().hex, Session(kg=request.kg)
        if request.session not in (None, NEW_SESSION):
            id_, found = str(request.session), await self._sessions.read(owner, str(request.session))
            # What another graph's answers were is nothing in this one.
            session = found if found.kg == request.kg else session
        understood, topics = await asyncio.to_thread(self._understand, request, session, remarks)
        update = {
            "question": understood.question,
            "topic_entities": request.topic_entities or topics or None,
            "session": None,
            "understood": None,
        }
        kept = None if request.session is None else (id_, session)
        return Meant(request.model_copy(update=update), request.question, understood, kept)

    async def remember(
        self, owner: str, meant: Meant, document: AnswerResponse, *, again: bool = False
    ) -> None:
        """Add an answer to its session. A failure is only logged, because the caller gets the answer anyway.

        Args:
            again: the question corrects the last one, if it is the same.
        """
        if meant.session is None or meant.understood is None:
            return
        id_, session = meant.session
        exchange = _exchange(meant.understood, document)
        session = session.with_last(meant.said, exchange, again=again and session.said == meant.said)
        try:
            await self._sessions.write(owner, id_, session)
        except ShelfUnavailableError as error:
            logger.warning("a session cannot be stored", extra={"session": id_, "error": str(error)})

    def _understand(
        self, request: AnswerRequest, session: Session, remarks: Sequence[Remark]
    ) -> tuple[Understood, tuple[str, ...]]:
        if request.understood is not None:
            return Understood(request.understood, is_changed=request.understood != request.question), ()
        graph = Acquaintances(self._tools, request.kg, request.graph)
        exchanges = session.exchanges or _exchanges(remarks, graph)
        written = (
            self._rewriter.complete(request.question, exchanges) if self._rewriter and exchanges else None
        )
        if written is not None:
            return Understood(written, is_changed=written != request.question), ()
        understood = understand(request.question, exchanges, graph)
        return understood, understood.topics(graph)


def _exchange(understood: Understood, document: AnswerResponse) -> Exchange:
    """What a session keeps of an answer."""
    linking = document.linking
    found = [
        Name(id=best.id, label=best.label, start=mention.start, end=mention.end)
        for mention in (linking.mentions if linking is not None else [])
        for best in mention.candidates[:1]
    ]
    things = [
        Thing(id=answer.id, label=answer.label or answer.value)
        for answer in document.answers
        if answer.id is not None and answer.kind == "entity"
    ]
    return Exchange(
        question=understood.question,
        names=(understood.names or tuple(found))[:MAX_NAMES],
        answers=tuple(things) if len(things) <= MAX_NAMES else (),
        topic=understood.topic,
    )


def _exchanges(remarks: Sequence[Remark], graph: Acquaintances) -> list[Exchange]:
    """The exchanges of a chat, whose earlier questions are understood one after the other."""
    told: list[Exchange] = []
    replies = graph.mentions([remark.reply[:_LONGEST_REPLY].partition("\n")[0] for remark in remarks])
    for remark, mentions in zip(remarks, replies, strict=True):
        try:
            understood = understand(remark.question, told, graph)
        except ConversationError:
            understood = Understood(remark.question)
        if not understood.names:
            (found,) = graph.mentions([understood.question])
            names = [Name(id=m.id, label=m.label, start=m.start, end=m.end) for m in found]
            understood = Understood(understood.question, tuple(names), understood.topic)
        things = tuple(dict.fromkeys(Thing(id=m.id, label=m.label) for m in mentions))
        told.append(
            Exchange(
                question=understood.question,
                names=understood.names[:MAX_NAMES],
                answers=things if len(things) <= MAX_NAMES else (),
                topic=understood.topic,
            )
        )
    return told

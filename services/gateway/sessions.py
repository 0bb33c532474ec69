"""Stores the sessions of callers: what was said in a conversation, for a while."""

from __future__ import annotations

from pydantic import BaseModel

from kbqa.conversation import Exchange
from kbqa.conversation.exchanges import MAX_EXCHANGES
from services.gateway.errors import SessionNotFoundError
from services.gateway.shelves import AnswerShelf


class Session(BaseModel):
    """The latest exchanges of a conversation about one graph; `said` is the last question as it was asked."""

    kg: str
    said: str = ""
    exchanges: tuple[Exchange, ...] = ()

    def with_last(self, said: str, exchange: Exchange, *, again: bool) -> Session:
        """The session after one more exchange.

        Args:
            again: the exchange takes the place of the last one, of which it is the correction.
        """
        before = self.exchanges[:-1] if again else self.exchanges
        return self.model_copy(update={"said": said, "exchanges": (*before, exchange)[-MAX_EXCHANGES:]})


class Sessions:
    """Stores sessions by owner and id; each expires `ttl_s` seconds after its last question.

    Two questions at the same time in one session both count only if they follow each other: the later
    answer decides what the session holds.
    """

    def __init__(self, shelf: AnswerShelf, ttl_s: int) -> None:
        self._shelf, self._ttl_s = shelf, ttl_s

    async def read(self, owner: str, id_: str) -> Session:
        """A session of an owner.

        Raises:
            SessionNotFoundError: none of this owner has this id, or it has expired.
            ShelfUnavailableError: sessions cannot be read now.
        """
        found = await self._shelf.get(_key(owner, id_))
        if found is None:
            raise SessionNotFoundError(id_, self._ttl_s)
        return Session.model_validate_json(found)

    async def write(self, owner: str, id_: str, session: Session) -> None:
        """Store a session; the oldest of the owner makes room.

        Raises:
            ShelfUnavailableError: it cannot be stored now.
        """
        value = session.model_dump_json().encode()
        await self._shelf.put(_key(owner, id_), value, self._ttl_s, f"sessions:{owner}")


def _key(owner: str, id_: str) -> str:
    return f"session:{owner}:{id_}"

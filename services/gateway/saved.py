"""Stores answers for a while, so that their caller can read them again."""

from __future__ import annotations

import logging

from pydantic import BaseModel

from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway.errors import AnswerNotFoundError, ShelfUnavailableError
from services.gateway.shelves import AnswerShelf, Pointer

logger = logging.getLogger(__name__)


class SavedAnswer(BaseModel):
    """An answer and its request."""

    request: AnswerRequest
    document: AnswerResponse


class SavedAnswers:
    """Stores answers by owner and id.

    Args:
        ttl_s: seconds for which an answer is stored.
    """

    def __init__(self, shelf: AnswerShelf, ttl_s: int) -> None:
        self._shelf, self._ttl_s = shelf, ttl_s

    async def save(
        self, owner: str, request: AnswerRequest, document: AnswerResponse, pointer: Pointer | None = None
    ) -> bool:
        """Store an answer. A failure is only logged, because the caller gets the answer anyway.

        Args:
            pointer: is stored with it.

        Returns:
            whether it was stored.
        """
        saved = SavedAnswer(request=request, document=document)
        try:
            key = _key(owner, document.id)
            return await self._shelf.put(key, saved.model_dump_json().encode(), self._ttl_s, owner, pointer)
        except ShelfUnavailableError as error:
            logger.warning(
                "an answer cannot be stored for reading again", extra={"id": document.id, "error": str(error)}
            )
            return False

    async def read(self, owner: str, id_: str) -> SavedAnswer:
        """An answer that `owner` received.

        Raises:
            AnswerNotFoundError: no answer has this id, it has expired, or it belongs to another owner.
            ShelfUnavailableError: answers cannot be read now.
        """
        found = await self._shelf.get(_key(owner, id_))
        if found is None:
            raise AnswerNotFoundError(id_, self._ttl_s)
        return SavedAnswer.model_validate_json(found)


def _key(owner: str, id_: str) -> str:
    return f"answer:{owner}:{id_}"

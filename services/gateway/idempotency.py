"""`Idempotency-Key`: a repeated request is computed once and gets the same answer.

For each key of an owner, the shelf stores first a claim and then, in its place, a pointer to the saved
answer. The request that computes the answer renews its claim regularly. A request that finds another one's
claim waits for the answer; if that claim is dropped or expires, the waiting request computes the answer
itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway.errors import AnswerNotFoundError, IdempotencyMismatchError, ShelfUnavailableError
from services.gateway.saved import SavedAnswers
from services.gateway.shelves import AnswerShelf, Pointer

logger = logging.getLogger(__name__)

_CLAIM_S = 15.0
_POLL_S = 0.1


@dataclass(slots=True)
class RequestTurn:
    """A request's turn to be answered.

    Attributes:
        known: the earlier answer; None if the answer has to be computed now.
        name: where the shelf has its claim; empty for a request without a key.
        fingerprint: of the request.
        saved: whether the answer has been saved with its pointer; set by the caller.
    """

    known: AnswerResponse | None = None
    name: str = ""
    fingerprint: str = ""
    saved: bool = False

    def pointer_to(self, answer: AnswerResponse) -> Pointer | None:
        """What repeated requests find; None if they cannot be recognised."""
        if not self.name:
            return None
        return Pointer(self.name, json.dumps({"request": self.fingerprint, "answer": answer.id}).encode())


class IdempotentAnswers:
    """Recognises repeated requests by their Idempotency-Key, as long as their answers are saved."""

    def __init__(self, shelf: AnswerShelf, saved: SavedAnswers) -> None:
        self._shelf, self._saved = shelf, saved

    @asynccontextmanager
    async def turn(self, owner: str, key: str, request: AnswerRequest) -> AsyncIterator[RequestTurn]:
        """A turn to answer a request; waits while another request with the same key is being answered.

        Raises:
            IdempotencyMismatchError: the key was used before with a different request.
            ShelfUnavailableError: Redis does not answer.
        """
        name = f"request:{owner}:{hashlib.sha256(key.encode()).hexdigest()}"
        fingerprint = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
        # The token tells the claims of two requests apart, one of which may have taken the other's place.
        claim = json.dumps({"request": fingerprint, "claim": secrets.token_hex(8)}).encode()
        while not await self._shelf.claim(name, claim, _CLAIM_S):
            known = await self._find(owner, name, fingerprint)
            if known is not None:
                yield RequestTurn(known)
                return
            await asyncio.sleep(_POLL_S)
        turn = RequestTurn(None, name, fingerprint)
        renewal = asyncio.create_task(self._renew(name, claim))
        try:
            yield turn
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            if not turn.saved:
                await asyncio.shield(self._release(name, claim))

    async def _find(self, owner: str, name: str, fingerprint: str) -> AnswerResponse | None:
        found = await self._shelf.get(name)
        if found is None:
            return None
        kept = json.loads(found)
        if kept["request"] != fingerprint:
            raise IdempotencyMismatchError
        if "answer" not in kept:
            return None
        try:
            return (await self._saved.read(owner, kept["answer"])).document
        except AnswerNotFoundError:  # a Redis that evicts keys has dropped it, and not its pointer
            await self._shelf.release(name, found)
            return None

    async def _renew(self, name: str, claim: bytes) -> None:
        while True:
            await asyncio.sleep(_CLAIM_S / 3)
            try:
                if not await self._shelf.renew(name, claim, _CLAIM_S):
                    return  # it expired, and perhaps another request has claimed the key since
            except ShelfUnavailableError as error:
                logger.warning("a claim on an Idempotency-Key cannot be renewed", extra={"error": str(error)})

    async def _release(self, name: str, claim: bytes) -> None:
        try:
            await self._shelf.release(name, claim)
        except ShelfUnavailableError as error:
            # It expires by itself.
            logger.warning("the claim on an Idempotency-Key stays", extra={"error": str(error)})

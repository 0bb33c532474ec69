"""`Idempotency-Key`: a request that is sent again is answered as it was, and computed once.

What lies on the shelf under an owner's key is first a claim, which whoever computes the answer renews as
long as he does, and then the answer. Whoever finds a claim waits: for the answer or, when the
claim is dropped or its holder has died, for his own turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway.errors import IdempotencyMismatchError, ShelfUnavailableError
from services.gateway.shelves import Shelf

logger = logging.getLogger(__name__)

_CLAIM_S = 15.0
_POLL_S = 0.1


class Turn:
    """A request's turn to be answered.

    Attributes:
        known: what the request was answered with before; None if it is to be computed now.
        answer: what it is answered with now; set it, and the next one gets it.
    """

    def __init__(self, known: AnswerResponse | None) -> None:
        self.known, self.answer = known, known


class Repeats:
    """Remembers answers by the keys that requests came with.

    Args:
        ttl_s: for how long.
    """

    def __init__(self, shelf: Shelf, ttl_s: float) -> None:
        self._shelf, self._ttl_s = shelf, ttl_s

    @asynccontextmanager
    async def turn(self, owner: str, key: str, request: AnswerRequest) -> AsyncIterator[Turn]:
        """One's turn to answer a request; waits while another one of its key is being answered.

        Raises:
            IdempotencyMismatchError: the key came with another request before.
            ShelfUnavailableError: it cannot be known whether it came before.
        """
        name = f"repeat:{owner}:{hashlib.sha256(key.encode()).hexdigest()}"
        fingerprint = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
        claim = json.dumps({"request": fingerprint}).encode()
        while not await self._shelf.claim(name, claim, _CLAIM_S):
            known = await self._find(name, fingerprint)
            if known is not None:
                yield Turn(known)
                return
            await asyncio.sleep(_POLL_S)
        turn = Turn(None)
        renewal = asyncio.create_task(self._renew(name, claim))
        try:
            yield turn
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            await asyncio.shield(self._conclude(name, fingerprint, turn.answer))

    async def _find(self, name: str, fingerprint: str) -> AnswerResponse | None:
        found = await self._shelf.get(name)
        if found is None:
            return None
        kept = json.loads(found)
        if kept["request"] != fingerprint:
            raise IdempotencyMismatchError
        answer = kept.get("answer")
        return None if answer is None else AnswerResponse.model_validate(answer)

    async def _renew(self, name: str, claim: bytes) -> None:
        while True:
            await asyncio.sleep(_CLAIM_S / 3)
            try:
                await self._shelf.put(name, claim, _CLAIM_S)
            except ShelfUnavailableError as error:
                logger.warning("a claim on an Idempotency-Key cannot be renewed", extra={"error": str(error)})

    async def _conclude(self, name: str, fingerprint: str, answer: AnswerResponse | None) -> None:
        try:
            if answer is None:
                await self._shelf.drop(name)
            else:
                kept = {"request": fingerprint, "answer": answer.model_dump(mode="json", exclude_none=True)}
                await self._shelf.put(name, json.dumps(kept).encode(), self._ttl_s)
        except ShelfUnavailableError as error:
            # The answer is given all the same; the claim ends by itself.
            logger.warning("an answer cannot be stored for its Idempotency-Key", extra={"error": str(error)})

"""`Idempotency-Key`: a repeated request is computed once and gets the same answer.

For each key of an owner, the shelf stores first a claim and then the answer. The request that computes the
answer renews its claim regularly. A request that finds another one's claim waits for the answer; if that
claim is dropped or expires, the waiting request computes the answer itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway.errors import IdempotencyMismatchError, ShelfUnavailableError
from services.gateway.shelves import AnswerShelf

logger = logging.getLogger(__name__)

_CLAIM_S = 15.0
_POLL_S = 0.1


class RequestTurn:
    """A request's turn to be answered.

    Attributes:
        known: the earlier answer; None if the answer has to be computed now.
        answer: the answer that repeated requests get; the caller sets it when it has computed one.
    """

    def __init__(self, known: AnswerResponse | None) -> None:
        self.known, self.answer = known, known


class IdempotentAnswers:
    """Remembers answers by Idempotency-Key.

    Args:
        ttl_s: seconds for which an answer is remembered.
    """

    def __init__(self, shelf: AnswerShelf, ttl_s: float) -> None:
        self._shelf, self._ttl_s = shelf, ttl_s

    @asynccontextmanager
    async def turn(self, owner: str, key: str, request: AnswerRequest) -> AsyncIterator[RequestTurn]:
        """A turn to answer a request; waits while another request with the same key is being answered.

        Raises:
            IdempotencyMismatchError: the key was used before with a different request.
            ShelfUnavailableError: Redis does not answer.
        """
        name = f"repeat:{owner}:{hashlib.sha256(key.encode()).hexdigest()}"
        fingerprint = hashlib.sha256(request.model_dump_json().encode()).hexdigest()
        # The token tells the claims of two requests apart, one of which may have taken the other's place.
        claim = json.dumps({"request": fingerprint, "claim": secrets.token_hex(8)}).encode()
        while not await self._shelf.claim(name, claim, _CLAIM_S):
            known = await self._find(name, fingerprint)
            if known is not None:
                yield RequestTurn(known)
                return
            await asyncio.sleep(_POLL_S)
        turn = RequestTurn(None)
        renewal = asyncio.create_task(self._renew(name, claim))
        try:
            yield turn
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            await asyncio.shield(self._conclude(owner, name, claim, fingerprint, turn.answer))

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
                if not await self._shelf.renew(name, claim, _CLAIM_S):
                    return  # it expired, and perhaps another request has claimed the key since
            except ShelfUnavailableError as error:
                logger.warning("a claim on an Idempotency-Key cannot be renewed", extra={"error": str(error)})

    async def _conclude(
        self, owner: str, name: str, claim: bytes, fingerprint: str, answer: AnswerResponse | None
    ) -> None:
        try:
            if answer is None:
                await self._shelf.release(name, claim)
            else:
                kept = {"request": fingerprint, "answer": answer.model_dump(mode="json", exclude_none=True)}
                await self._shelf.put(name, json.dumps(kept).encode(), self._ttl_s, owner)
        except ShelfUnavailableError as error:
            # The answer is sent anyway; the claim expires by itself.
            logger.warning("an answer cannot be stored for its Idempotency-Key", extra={"error": str(error)})

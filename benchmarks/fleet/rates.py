"""The rates of the whole target, for components that get all of it, without the rest of the fleet.

What a component costs at a hundredth of its load says too much: it is woken for every command, and finds
nothing in the caches.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from benchmarks.fleet.simulated import GRAPH
from kbqa.client.models import AnswerRequest, AnswerResponse
from kbqa.runs.directory import RunDirectory
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import DELIVER_TASK, TRAJECTORIES, RolloutReply, decode, encode
from services.access.counts import Counts
from services.broker import create_celery, send
from services.gateway.idempotency import IdempotentAnswers
from services.gateway.saved import SavedAnswers
from services.gateway.shelves import RedisShelf

_TIMEOUT_S = 10.0
_TTL_S, _KEPT, _ROOM = 3600, 1000, 64 * 2**20  # the gateway's defaults
_TAKEN_S = 120.0


class Bookkeeping:
    """What gateways ask of their Redis for a question that has a key and an `Idempotency-Key`.

    Args:
        url: of Redis.
        document: an answer, which every question gets under an id of its own.
    """

    def __init__(
        self, url: str, gateways: int, document: AnswerResponse, rate: str, quota: str, owners: Sequence[str]
    ) -> None:
        self._url, self._gateways, self._document = url, gateways, document
        self._rate, self._quota, self._owners = rate, quota, owners

    async def keep(self, per_second: float, seconds: float) -> int:
        """Ask at a rate, or as fast as this process can; returns the number of questions."""
        gateways = [_Books(self._url) for _ in range(self._gateways)]
        asked, began = set[asyncio.Task[None]](), time.monotonic()
        number = 0
        while (now := time.monotonic() - began) < seconds:
            while number < now * per_second and len(asked) < 32 * self._gateways:
                books, owner = gateways[number % self._gateways], self._owners[number % len(self._owners)]
                asked.add(task := asyncio.create_task(self._question(books, owner)))
                task.add_done_callback(asked.discard)
                number += 1
            await asyncio.sleep(0.001)
        await asyncio.gather(*asked)
        for books in gateways:
            await books.close()
        return number

    async def _question(self, books: _Books, owner: str) -> None:
        id_ = secrets.token_hex(16)
        request = AnswerRequest(question=f"Who directed {id_}?", kg=GRAPH)
        document = self._document.model_copy(update={"id": id_})
        await books.counts.take(self._rate, "requests", owner)
        async with books.idempotent.turn(owner, id_, request) as turn:
            await books.counts.take(self._quota, "questions", owner)
            turn.saved = await books.saved.save(owner, request, document, turn.pointer_to(document))


class _Books:
    """Of one gateway."""

    def __init__(self, url: str) -> None:
        self.counts = Counts(url, timeout_s=_TIMEOUT_S)
        metrics = Metrics(CollectorRegistry())
        self._shelf = RedisShelf(url, "kbqa:gateway", _KEPT, _ROOM, metrics, timeout_s=_TIMEOUT_S)
        self.saved = SavedAnswers(self._shelf, _TTL_S)
        self.idempotent = IdempotentAnswers(self._shelf, self.saved)

    async def close(self) -> None:
        await self.counts.close()
        await self._shelf.close()


class Replies:
    """Copies of a reply, for the trainer's service.

    Args:
        run: into whose inbox they go; it does not train.
    """

    def __init__(self, broker_url: str, run: RunDirectory) -> None:
        self._broker_url, self._run = broker_url, run

    def prepare(self, message: str, count: int) -> list[str]:
        """Copies of an encoded reply with a group, with ids of their own."""
        if not count:
            return []
        reply = decode(RolloutReply, message)
        assert reply.group is not None
        ids = (secrets.token_hex(16) for _ in range(count))
        copies = (
            reply.model_copy(
                update={"run": self._run.id, "request_id": id_, "group": replace(reply.group, id=id_)}
            )
            for id_ in ids
        )
        return list(map(encode, copies))

    def send(self, messages: Sequence[str], per_second: float) -> None:
        """Send them at a rate, and wait until all are on the trainer's disk.

        Raises:
            RuntimeError: that takes too long.
        """
        app, before = create_celery("workers", self._broker_url), len(self._run.inbox.ids())
        began = time.monotonic()
        for number, message in enumerate(messages):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            send(app, TRAJECTORIES, DELIVER_TASK, message)
        while len(self._run.inbox.ids()) < before + len(messages):
            if time.monotonic() > began + len(messages) / per_second + _TAKEN_S:
                raise RuntimeError("the trainer does not take all replies: look into its log")
            time.sleep(0.2)

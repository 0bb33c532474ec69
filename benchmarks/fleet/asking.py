"""Callers of a fleet's gateways: each question has an `Idempotency-Key`, and every second one is a stream."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp

from benchmarks.fleet.simulated import GRAPH
from kbqa.client.models import AnswerResponse

_TIMEOUT_S = 60.0


class Callers:
    """Asks one gateway after another, with one key after another.

    Attributes:
        ends: questions by how they ended: `answered`, an HTTP status, an error's type, or an exception.
        document: the latest answer; None before the first.
    """

    document: AnswerResponse | None = None

    def __init__(self, urls: Sequence[str], keys: Sequence[str]) -> None:
        self._turns = zip(itertools.cycle(urls), itertools.cycle(keys), itertools.count(1))
        self._name = secrets.token_hex(4)
        self.ends = Counter[str]()

    async def ask(self, per_second: float, seconds: float) -> None:
        """Ask at a rate, whether or not answers come."""
        asked = set[asyncio.Task[None]]()
        async with _session() as session:
            began = time.monotonic()
            for number in range(max(1, round(per_second * seconds))):
                await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
                asked.add(task := asyncio.create_task(self._ask(session)))
                task.add_done_callback(asked.discard)
            await asyncio.gather(*asked)

    async def press(self, at_a_time: int, seconds: float) -> None:
        """Keep so many questions in progress."""
        until = time.monotonic() + seconds

        async def ask_on(session: aiohttp.ClientSession) -> None:
            while time.monotonic() < until:
                await self._ask(session)

        async with _session() as session:
            await asyncio.gather(*(ask_on(session) for _ in range(at_a_time)))

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        url, key, number = next(self._turns)
        body = {
            "question": f"Who directed number {number} of {self._name}?",
            "kg": GRAPH,
            "topic_entities": ["Topic"],
            "stream": number % 2 == 0,
        }
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": f"{self._name}-{number}"}
        end = "cut off"
        try:
            async with session.post(f"{url}/v1/answer", json=body, headers=headers) as response:
                if response.status != 200:
                    end = str(response.status)
                elif not body["stream"]:
                    self.document = AnswerResponse.model_validate_json(await response.read())
                    end = "answered" if self.document.answers else "unanswered"
                else:
                    async for line in response.content:
                        if line.startswith(b"data: "):
                            end = _end(json.loads(line.removeprefix(b"data: ")), end)
        except (aiohttp.ClientError, TimeoutError) as error:
            end = type(error).__name__
        self.ends[end] += 1


def _end(event: dict[str, object], end: str) -> str:
    match event:
        case {"event": "done", "document": {"answers": answers}}:
            return "answered" if answers else "unanswered"
        case {"event": "error", "error": {"type": kind}}:
            return str(kind)
    return end


@asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout, connector = aiohttp.ClientTimeout(total=_TIMEOUT_S), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 20) as session:
        yield session

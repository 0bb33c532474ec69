"""When lines of batches may begin, so that callers who wait for an answer do not wait for batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Admission:
    """Lets lines begin, in turn; for one event loop.

    While questions of callers who wait are being answered, one line at a time is begun, so that batches still
    end; otherwise several are.

    Args:
        most: number of lines that may be under way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._questions = self._lines = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def question_began(self) -> None:
        """Somebody waits for the answer to a question."""
        self._questions += 1

    def question_ended(self) -> None:
        self._questions -= 1
        self._admit()

    @asynccontextmanager
    async def line(self) -> AsyncIterator[None]:
        """Wait for a place; the block may then answer a line."""
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._admit()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it was given the place at the same moment
                self._free()
            raise
        try:
            yield
        finally:
            self._free()

    def _free(self) -> None:
        self._lines -= 1
        self._admit()

    def _admit(self) -> None:
        most = 1 if self._questions else self._most
        while self._waiting and self._lines < most:
            place = self._waiting.popleft()
            if not place.cancelled():
                self._lines += 1
                place.set_result(None)

"""Rollouts in this process: no queue, no worker, nothing that could get lost."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from kbqa.wire import RolloutReply, RolloutRequest

Execute = Callable[[RolloutRequest], RolloutReply]


class LocalSource:
    """Plays requests in threads.

    Args:
        execute: plays and scores one, and never raises: `RolloutExecutor.execute`.
        width: requests played at a time.
    """

    def __init__(self, execute: Execute, width: int) -> None:
        self._execute = execute
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="rollout")

    def open(self, kind: str, *, spent: Callable[[str], bool], deadline_s: float) -> LocalRollouts:
        return LocalRollouts(self._threads, self._execute)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)


class LocalRollouts:
    """The port `Rollouts` over a thread pool."""

    def __init__(self, threads: ThreadPoolExecutor, execute: Execute) -> None:
        self._threads, self._execute = threads, execute
        self._played: queue.SimpleQueue[RolloutReply] = queue.SimpleQueue()
        self._renewed = 0

    @property
    def counters(self) -> dict[str, int]:
        return {"resent": 0, "renewed": self._renewed, "duplicates": 0}

    def ask(self, request: RolloutRequest) -> None:
        self._threads.submit(self._execute, request).add_done_callback(self._keep)

    def ask_anew(self, request: RolloutRequest) -> None:
        self._renewed += 1
        self.ask(request)

    def receive(self, wait_s: float) -> list[RolloutReply]:
        replies = []
        with suppress(queue.Empty):
            replies.append(self._played.get(timeout=wait_s))
            while True:
                replies.append(self._played.get_nowait())
        return replies

    def give_up(self) -> list[str]:
        return []

    def release(self) -> None:
        """Nothing is kept of what was received."""

    def _keep(self, played: Future[RolloutReply]) -> None:
        if not played.cancelled():
            self._played.put(played.result())

"""Request coalescing: concurrent requests for the same result compute it once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Flights(Generic[T]):
    """Computations in progress, by key; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[T]] = {}

    def running(self, key: Hashable) -> Future[T] | None:
        """The computation in progress for a key, or None; it cannot be cancelled."""
        return self._running.get(key)

    def run(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute`, or of a computation in progress for the same key; raises its exception."""
        with self._lock:
            flight = self._running.get(key)
            leads = flight is None
            if flight is None:
                flight = self._running[key] = Future()
                flight.set_running_or_notify_cancel()
        if not leads:
            return flight.result()
        try:
            outcome = compute()
        except BaseException as error:
            self._land(key)
            flight.set_exception(error)
            raise
        self._land(key)
        flight.set_result(outcome)
        return outcome

    def _land(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]

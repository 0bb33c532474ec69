"""Bounds concurrent costly work, with fair queueing between clients."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

from kbqa.errors import QueryOverloadError

_OVERLOAD = "too many queries are waiting: try again later"


class AdmissionGate:
    """A semaphore for threads that do costly work, fair between clients.

    A free place goes to the client that holds the fewest places and, among those, has waited longest. A
    client that sends many expensive queries therefore delays another client by one of them, not by all. If
    the queue is full, the client with the most waiting threads loses its latest one.

    Args:
        places: maximum number of threads that hold a place.
        queue: maximum number of waiting threads.
    """

    def __init__(self, places: int, queue: int) -> None:
        self.places, self.queue = places, queue
        self._lock = threading.Lock()
        self._inside: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiter]] = {}
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        """Number of threads that wait for a place."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    @contextmanager
    def place(self, client: str, *, wait_s: float) -> Iterator[None]:
        """Hold a place while the block runs.

        Args:
            client: name of the client that the work is for.
            wait_s: maximum time to wait for a place, in seconds.

        Raises:
            QueryOverloadError: too many threads are waiting, or no place became free in time.
        """
        self._enter(client, wait_s)
        try:
            yield
        finally:
            self._leave(client)

    def _enter(self, client: str, wait_s: float) -> None:
        with self._lock:
            if self._inside.total() < self.places and not self._waiting:
                self._inside[client] += 1
                return
            if sum(map(len, self._waiting.values())) >= self.queue:
                self._turn_away(client, wait_s)
            self._arrivals += 1
            waiter = _Waiter(self._arrivals)
            self._waiting.setdefault(client, deque()).append(waiter)
        waiter.decided.wait(wait_s)
        with self._lock:
            if waiter.admitted:
                return
            if not waiter.decided.is_set():
                self._forget(client, waiter)
        raise QueryOverloadError(_OVERLOAD, wait_s)

    def _leave(self, client: str) -> None:
        with self._lock:
            self._inside -= Counter([client])
            if not self._waiting:
                return
            chosen = min(self._waiting, key=lambda key: (self._inside[key], self._waiting[key][0].arrival))
            waiter = self._waiting[chosen][0]
            self._forget(chosen, waiter)
            self._inside[chosen] += 1
            waiter.admitted = True
            waiter.decided.set()

    def _turn_away(self, newcomer: str, wait_s: float) -> None:
        """Make room for a newcomer by rejecting a thread of the client with the most waiting threads.

        Raises:
            QueryOverloadError: no other client has at least two more waiting threads than the newcomer.
        """
        greediest = max(self._waiting, key=lambda key: len(self._waiting[key]), default=newcomer)
        theirs, own = (len(self._waiting.get(key, ())) for key in (greediest, newcomer))
        if theirs <= own + 1:
            raise QueryOverloadError(_OVERLOAD, wait_s)
        waiter = self._waiting[greediest][-1]
        self._forget(greediest, waiter)
        waiter.decided.set()

    def _forget(self, client: str, waiter: _Waiter) -> None:
        self._waiting[client].remove(waiter)
        if not self._waiting[client]:
            del self._waiting[client]


class _Waiter:
    """A waiting thread; `decided` is set when it is admitted or rejected."""

    __slots__ = ("admitted", "arrival", "decided")

    def __init__(self, arrival: int) -> None:
        self.arrival, self.admitted, self.decided = arrival, False, threading.Event()

"""Metrics of the queues' lengths and of the memory of their Redis, read when Prometheus scrapes them."""

from __future__ import annotations

import math
import threading
import time
from functools import partial

from celery import Celery

from kbqa.errors import QueueUnavailableError
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import QUEUES
from services.broker import connected, create_celery, require_broker
from services.dead_letters import DeadLetters

STATES = ("waiting", "taken", "dead")
_MEMORY = {"used": "used_memory", "limit": "maxmemory"}  # as Redis calls it
_FRESH_S = 2.0  # time for which counts are reused, so that a scrape asks the broker only once


def expose_depths(metrics: Metrics, broker_url: str, prefix: str = "") -> None:
    """Export the waiting, taken and dead messages of each queue; NaN while no broker answers."""
    for queue in QUEUES:
        depths = _Depths(broker_url, prefix, queue)
        for state in STATES:
            metrics.gauge("kbqa_queue_messages").labels(queue, state).set_function(
                partial(depths.read, state)
            )
    memory = _Memory(broker_url, prefix)
    for kind, field in _MEMORY.items():
        metrics.gauge("kbqa_redis_memory_bytes").labels(kind).set_function(partial(memory.read, field))


class _Asked:
    """Numbers that a broker is asked for, cached for a moment."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._until = 0.0

    def read(self, name: str) -> float:
        """A number; NaN if the broker does not tell."""
        with self._lock:
            if time.monotonic() > self._until:
                self._numbers = self._answer()
                self._until = time.monotonic() + _FRESH_S
            return self._numbers.get(name, math.nan)

    def _answer(self) -> dict[str, int]:
        try:
            require_broker(self._app)  # fails at once, whereas asking would retry for ever
            return self._ask()
        except QueueUnavailableError:
            return {}

    def _ask(self) -> dict[str, int]:
        raise NotImplementedError


class _Depths(_Asked):
    """The counts of one queue."""

    def __init__(self, broker_url: str, prefix: str, queue: str) -> None:
        super().__init__(create_celery("trainer", broker_url, prefix=prefix, consumes=queue))
        self._letters = DeadLetters(self._app, queue)

    def _ask(self) -> dict[str, int]:
        return self._letters.counts()


class _Memory(_Asked):
    """The memory of the queues' Redis, as its INFO says; without a limit if that is 0."""

    def __init__(self, broker_url: str, prefix: str) -> None:
        super().__init__(create_celery("trainer", broker_url, prefix=prefix))

    def _ask(self) -> dict[str, int]:
        with connected(self._app) as connection:
            channel = connection.default_channel
            if not hasattr(channel, "unacked_key"):
                return {}
            found = channel.client.info("memory")
        return {field: int(found[field]) for field in _MEMORY.values() if found.get(field)}

"""Metrics of the queues' lengths, read when Prometheus scrapes them."""

from __future__ import annotations

import math
import threading
import time
from functools import partial

from kbqa.errors import QueueUnavailableError
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import QUEUES
from services.broker import create_celery, require_broker
from services.dead_letters import DeadLetters

STATES = ("waiting", "taken", "dead")
_FRESH_S = 2.0  # time for which counts are reused, so that a scrape asks the broker only once


def expose_depths(metrics: Metrics, broker_url: str, prefix: str = "") -> None:
    """Export the waiting, taken and dead messages of each queue; NaN while no broker answers."""
    for queue in QUEUES:
        depths = _Depths(broker_url, prefix, queue)
        for state in STATES:
            metrics.gauge("kbqa_queue_messages").labels(queue, state).set_function(
                partial(depths.read, state)
            )


class _Depths:
    """The counts of one queue, cached for a moment."""

    def __init__(self, broker_url: str, prefix: str, queue: str) -> None:
        self._app = create_celery("trainer", broker_url, prefix=prefix, consumes=queue)
        self._letters = DeadLetters(self._app, queue)
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._until = 0.0

    def read(self, state: str) -> float:
        with self._lock:
            if time.monotonic() > self._until:
                self._counts = self._ask()
                self._until = time.monotonic() + _FRESH_S
            return self._counts.get(state, math.nan)

    def _ask(self) -> dict[str, int]:
        try:
            require_broker(self._app)  # fails at once, whereas counting would retry for ever
            return self._letters.counts()
        except QueueUnavailableError:
            return {}

"""Whether a worker takes requests. After failures of its own it stands back and leaves them to others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from kbqa.runs.failures import SCOPES, Scope
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import RolloutFailure

logger = logging.getLogger(__name__)

_PAUSE_S = (5.0, 120.0)  # first and longest
_STRIKES = 3  # failures in a row whose causes may be their requests


class Standing:
    """Counts answers and failures; safe for many threads.

    Args:
        pause: takes no requests for so many seconds.
        clock: seconds.
    """

    def __init__(
        self, metrics: Metrics, pause: Callable[[float], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pause, self._clock = pause, clock
        self._lock = threading.Lock()
        self._strikes = self._pauses = 0
        self._until = 0.0
        self._why = ""
        metrics.gauge("kbqa_rollout_standing_back").set_function(lambda: float(self.unready() is not None))

    def answered(self) -> None:
        with self._lock:
            self._strikes = self._pauses = 0

    def failed(self, failure: RolloutFailure) -> None:
        """Stand back, unless the cause may be this request alone."""
        with self._lock:
            self._strikes += 1
            alone = SCOPES[failure.reason] is Scope.REQUEST and self._strikes < _STRIKES
            # Requests that were in progress when the pause began fail for the same cause.
            if alone or self._clock() < self._until:
                return
            first, longest = _PAUSE_S
            pause_s = min(first * 2.0**self._pauses, longest)
            self._pauses += 1
            self._until = self._clock() + pause_s
            self._why = f"{failure.reason}: {failure.detail}"
        logger.error("no requests are taken for a while", extra={"pause_s": pause_s, "reason": self._why})
        self._pause(pause_s)

    def unready(self) -> str | None:
        """None while requests are taken, otherwise why not."""
        with self._lock:
            left_s = self._until - self._clock()
            return f"takes no requests for another {left_s:.0f} s ({self._why})" if left_s > 0 else None

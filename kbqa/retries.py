"""Retries with growing pauses, for a store, a broker or a server that may be unavailable for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_before_delay,
    stop_when_event_set,
    wait_random_exponential,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")


def retry(
    call: Callable[[], T],
    *,
    on: type[Exception],
    patience_s: float,
    first_pause_s: float,
    longest_pause_s: float,
    until: threading.Event | None = None,
) -> T:
    """Call until it succeeds; raise its last error when no further attempt could begin before the deadline.

    Each pause is drawn at random between half the first pause and a bound that doubles, so that many callers
    do not retry at the same moment.

    Args:
        on: error after which the call is retried; all others are raised at once.
        patience_s: seconds after the first attempt within which the last attempt must begin.
        first_pause_s, longest_pause_s: upper bounds of the first pause and of every pause, in seconds.
        until: takes the place of the deadline: it is called until it succeeds or this is set.
    """
    given_up = threading.Event() if until is None else until
    retrying = Retrying(
        retry=retry_if_exception_type(on),
        stop=stop_before_delay(patience_s) if until is None else stop_when_event_set(until),
        wait=wait_random_exponential(multiplier=first_pause_s, min=first_pause_s / 2, max=longest_pause_s),
        sleep=sleep_using_event(given_up),
        before_sleep=None if until is None else _tell,
        reraise=True,
    )
    return retrying(call)


def _tell(attempt: RetryCallState) -> None:
    """Log a failure that is waited for without a deadline."""
    error = attempt.outcome and attempt.outcome.exception()
    logger.warning(
        "waiting", extra={"reason": str(error), "waited_s": round(attempt.seconds_since_start or 0)}
    )

"""Retries with growing pauses, for a store, a broker or a server that may be unavailable for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_before_delay, wait_random_exponential

T = TypeVar("T")


def retry(
    call: Callable[[], T],
    *,
    on: type[Exception],
    patience_s: float,
    first_pause_s: float,
    longest_pause_s: float,
) -> T:
    """Call until it succeeds; raise its last error when no further attempt could begin before the deadline.

    Each pause is drawn at random between half the first pause and a bound that doubles, so that many callers
    do not retry at the same moment.

    Args:
        on: error after which the call is retried; all others are raised at once.
        patience_s: seconds after the first attempt within which the last attempt must begin.
        first_pause_s, longest_pause_s: upper bounds of the first pause and of every pause, in seconds.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(on),
        stop=stop_before_delay(patience_s),
        wait=wait_random_exponential(multiplier=first_pause_s, min=first_pause_s / 2, max=longest_pause_s),
        reraise=True,
    )
    return retrying(call)

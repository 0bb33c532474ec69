"""Retries with growing pauses, for what may be away for a while: a store, a broker, a server."""

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
    """Call until it succeeds, and raise its last error once no further attempt would begin in time.

    Each pause is drawn between zero and a bound that doubles, so that many callers do not come back at once.

    Args:
        on: error that is worth another attempt; all others are raised at once.
        patience_s: seconds from the first attempt in which the last one has to begin.
        first_pause_s, longest_pause_s: bounds of the first pause and of every pause, in seconds.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(on),
        stop=stop_before_delay(patience_s),
        wait=wait_random_exponential(multiplier=first_pause_s, min=first_pause_s / 2, max=longest_pause_s),
        reraise=True,
    )
    return retrying(call)

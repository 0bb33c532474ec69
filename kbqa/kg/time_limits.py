"""The time that look-ups at an endpoint may take: what their action allows, until the end of its batch.

A look-up has no argument for it: stores, and kg_server's guard around them, would have to pass it on in every
method. It therefore belongs to the thread that executes the action, and ends with the action.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from kbqa.errors import QueryTimeoutError

_until: ContextVar[float | None] = ContextVar("look_ups_until", default=None)
_end: ContextVar[float] = ContextVar("look_ups_end", default=math.inf)


@contextmanager
def look_ups_within(seconds: float) -> Iterator[None]:
    """Allow the look-ups of the block so many seconds, all together."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


@contextmanager
def look_ups_before(end: float) -> Iterator[None]:
    """No look-up of the block takes longer than until `end` (`time.monotonic()`), whatever is allowed."""
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def look_up_s(usual_s: float) -> float:
    """Seconds that a look-up may take: what is left of the time that is allowed, never less than usual.

    Raises:
        QueryTimeoutError: its batch has ended.
    """
    until = _until.get()
    allowed_s = usual_s if until is None else max(usual_s, until - time.monotonic())
    return min(allowed_s, left_s(_end.get()))


def left_s(end: float) -> float:
    """Seconds until the end of a batch.

    Args:
        end: `time.monotonic()` then.

    Raises:
        QueryTimeoutError: it has ended.
    """
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise QueryTimeoutError("the batch's deadline has passed: send fewer actions, or narrower ones")
    return seconds

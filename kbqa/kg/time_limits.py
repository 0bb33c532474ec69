"""The time that an action allows its look-ups at an endpoint.

A look-up has no argument for it: stores, and kg_server's guard around them, would have to pass it on in every
method. It therefore belongs to the thread that executes the action, and ends with the action.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_until: ContextVar[float | None] = ContextVar("look_ups_until", default=None)


@contextmanager
def look_ups_within(seconds: float) -> Iterator[None]:
    """Allow the look-ups of the block so many seconds, all together."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def look_up_s(usual_s: float) -> float:
    """Seconds that a look-up may take: what is left of the time that is allowed, never less than usual."""
    until = _until.get()
    return usual_s if until is None else max(usual_s, until - time.monotonic())

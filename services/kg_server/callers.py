"""The sender of a request: its name for limits and fair queueing, and whether it accepts cached answers."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        client: name of its API key or, without keys, its address.
        fresh: whether it declines cached answers (`Cache-Control: no-cache`); its own are still cached.
        private: whether its own answers must not be cached either (`no-store`); implies `fresh`.
    """

    client: str
    fresh: bool = False
    private: bool = False


def caller_of(request: Request) -> Caller:
    """The caller of a request that `Admission` has admitted."""
    control = request.headers.get("cache-control", "").lower()
    private = "no-store" in control
    return Caller(request.scope["state"]["client"], private or "no-cache" in control, private)

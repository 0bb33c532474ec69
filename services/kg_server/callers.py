"""Who sends a request, as far as it matters: whose turn it takes, and whether it wants fresh answers."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        client: name of its API key or, without keys, its address.
        fresh: whether it declines cached answers (`Cache-Control: no-cache`); new ones are kept.
        private: whether new ones are not kept either (`no-store`).
    """

    client: str
    fresh: bool = False
    private: bool = False


def caller_of(request: Request) -> Caller:
    """The caller of a request that `Admission` has let in."""
    control = request.headers.get("cache-control", "").lower()
    private = "no-store" in control
    return Caller(request.scope["state"]["client"], private or "no-cache" in control, private)

"""The sender of a request: its name for limits and fair queueing, and whether it accepts cached answers."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from services.access.errors import GraphForbiddenError


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        client: name of its API key or, without keys, its address.
        fresh: whether it declines cached answers (`Cache-Control: no-cache`); its own are still cached.
        private: whether its own answers must not be cached either (`no-store`); implies `fresh`.
        graphs: names of the graphs and views that it may ask; None for all.
        may_change: whether it may change these graphs.
    """

    client: str
    fresh: bool = False
    private: bool = False
    graphs: frozenset[str] | None = None
    may_change: bool = False

    def may_ask(self, kg: str) -> bool:
        return self.graphs is None or kg in self.graphs

    def require(self, kg: str) -> None:
        """Check that it may ask a graph.

        Raises:
            GraphForbiddenError: its key is restricted to other graphs.
        """
        if self.graphs is not None and kg not in self.graphs:
            raise GraphForbiddenError(kg, self.graphs)


def caller_of(request: Request) -> Caller:
    """The caller of a request that `Admission` has admitted."""
    control = request.headers.get("cache-control", "").lower()
    private = "no-store" in control
    state = request.scope["state"]
    return Caller(
        state["client"], private or "no-cache" in control, private, state["graphs"], state["may_change"]
    )

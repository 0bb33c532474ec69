"""Admission control: API keys, the rate limit of each client, and limits of concurrent requests.

A request over a limit is refused at once with 429 and `Retry-After`; no request waits here.
"""

from __future__ import annotations

from collections import Counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kbqa.telemetry.metrics import Metrics
from services.access.counts import Counts
from services.access.credentials import address_of, presented_key
from services.access.errors import ACCESS_STATUS, AccessError, RateExceededError
from services.access.guard import OPEN_PATHS
from services.access.keys import Keys
from services.http import domain_response, error_kind
from services.kg_server.settings import KgServerSettings


class ConcurrencyExceededError(AccessError):
    """Too many requests are running, from one client or in total."""

    retry_after_s = 1.0


class Admission:
    """ASGI middleware that refuses requests without a valid key and requests over a limit.

    It stores the client's name in the scope's state (the name of its key or, without keys, its address),
    the graphs that it may ask, and whether it may change them. Without keys, everybody may.

    Args:
        keys: accepted keys; None admits everybody.
    """

    def __init__(
        self, app: ASGIApp, *, settings: KgServerSettings, keys: Keys | None, metrics: Metrics
    ) -> None:
        self._app, self._keys, self._rate = app, keys, settings.rate
        self._counts = Counts()
        self._running = Running(of_client=settings.client_concurrency, of_all=settings.concurrency)
        self._refusals = metrics.counter("kbqa_kg_refusals_total")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            client, graphs, may_change = await self._admitted(scope)
        except AccessError as error:
            self._refusals.labels(error_kind(type(error))).inc()
            await domain_response(error, _STATUS)(scope, receive, send)
            return
        scope.setdefault("state", {}).update(client=client, graphs=graphs, may_change=may_change)
        try:
            await self._app(scope, receive, send)
        finally:
            self._running.end(client)

    async def _admitted(self, scope: Scope) -> tuple[str, frozenset[str] | None, bool]:
        """Admit a request and count it as running; returns the client's name, its graphs, and whether it may
        change them."""
        graphs, may_change = None, True
        if self._keys is None:
            client, rate = address_of(scope.get("client")), self._rate
        else:
            record = self._keys.find(presented_key(Headers(scope=scope)))
            client, rate = record.name, record.rate or self._rate
            graphs = None if record.is_for_all else frozenset(record.graphs)
            may_change = record.changes
        wait_s = await self._counts.take(rate, "requests", client)
        if wait_s is not None:
            raise RateExceededError(str(rate), wait_s)
        self._running.begin(client)
        return client, graphs, may_change


class Running:
    """Counts running requests; for one event loop.

    Args:
        of_client: limit for each client.
        of_all: limit for all clients together.
    """

    def __init__(self, *, of_client: int, of_all: int) -> None:
        self._of_client, self._of_all = of_client, of_all
        self._clients: Counter[str] = Counter()

    def begin(self, client: str) -> None:
        """Count a request as running.

        Raises:
            ConcurrencyExceededError: a limit is reached.
        """
        if self._clients.total() >= self._of_all:
            raise ConcurrencyExceededError("too many requests are running: try again later")
        if self._clients[client] >= self._of_client:
            raise ConcurrencyExceededError(
                "you have too many requests running: wait for answers, or send larger batches"
            )
        self._clients[client] += 1

    def end(self, client: str) -> None:
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]


_STATUS = {**ACCESS_STATUS, ConcurrencyExceededError: 429}

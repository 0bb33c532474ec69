"""Admission control: who asks, and whether it asks for more than its share.

Requests over a limit are refused at once, with 429 and `Retry-After`; none waits here.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kbqa.telemetry import Metrics
from services.credentials import address_of, presented_key
from services.http import problem
from services.kg_server.keys import ApiKeys
from services.kg_server.settings import KgServerSettings

# Clients that are remembered; beyond that the one that was seen longest ago is forgotten.
_CLIENTS = 10_000
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Admission:
    """ASGI middleware that refuses strangers and those who ask too much.

    It leaves the client's name in the scope's state: its key's name or, where no keys are
    set, its address (of IPv6 the network, of which a host has as many addresses as it wants).

    Args:
        keys: those that are accepted; None accepts everybody.
    """

    def __init__(
        self, app: ASGIApp, *, settings: KgServerSettings, keys: ApiKeys | None, metrics: Metrics
    ) -> None:
        self._app, self._keys = app, keys
        self._limits = ClientLimits(
            per_s=settings.client_requests_per_s,
            concurrent=settings.client_concurrency,
            in_all=settings.concurrency,
        )
        self._refusals = metrics.counter("kbqa_kg_refusals_total")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        client = self._client(scope)
        if client is None:
            await self._refuse("no key", 401, {"WWW-Authenticate": "Bearer"}, _NO_KEY)(scope, receive, send)
            return
        refusal = self._limits.enter(client)
        if refusal is not None:
            reason, wait_s = refusal
            headers = {"Retry-After": str(math.ceil(wait_s))}
            await self._refuse(reason, 429, headers, _TOO_MUCH[reason])(scope, receive, send)
            return
        scope.setdefault("state", {})["client"] = client
        try:
            await self._app(scope, receive, send)
        finally:
            self._limits.leave(client)

    def _client(self, scope: Scope) -> str | None:
        if self._keys is None:
            return address_of(scope.get("client"))
        return self._keys.name_of(presented_key(Headers(scope=scope)))

    def _refuse(self, reason: str, status: int, headers: Mapping[str, str], detail: str) -> ASGIApp:
        self._refusals.labels(reason).inc()
        return problem(status, detail, kind=reason.replace(" ", "-"), headers=headers)


_NO_KEY = "send an API key of this server as Authorization: Bearer KEY, or as X-API-Key: KEY"
_TOO_MUCH = {
    "rate": "you send more requests a second than this server takes from one client: send larger batches",
    "client concurrency": "you have too many requests under way: wait for answers, or send larger batches",
    "concurrency": "too many requests are under way: try again later",
}


class ClientLimits:
    """How much each client has under way, and what it has left of its rate (a token bucket).

    Not for threads: an event loop enters and leaves.

    Args:
        per_s: requests a second; a client that was quiet may send those of two seconds at
            once. None for no limit.
        concurrent: requests of a client at a time.
        in_all: requests of all clients at a time.
    """

    def __init__(self, *, per_s: float | None, concurrent: int, in_all: int) -> None:
        self._per_s, self._concurrent, self._in_all = per_s, concurrent, in_all
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._under_way = 0

    def enter(self, name: str) -> tuple[str, float] | None:
        """Count a request in; or why it may not come in, and after how many seconds to try again."""
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client(self._burst)
            self._forget_some()
        if self._under_way >= self._in_all:
            return "concurrency", 1.0
        if client.under_way >= self._concurrent:
            return "client concurrency", 1.0
        if self._per_s is not None:
            now = time.monotonic()
            client.tokens = min(self._burst, client.tokens + (now - client.at) * self._per_s)
            client.at = now
            if client.tokens < 1:
                return "rate", (1 - client.tokens) / self._per_s
            client.tokens -= 1
        self._clients.move_to_end(name)
        client.under_way += 1
        self._under_way += 1
        return None

    def leave(self, name: str) -> None:
        self._under_way -= 1
        client = self._clients.get(name)
        if client is not None:
            client.under_way -= 1

    @property
    def _burst(self) -> float:
        return max(1.0, 2 * self._per_s) if self._per_s is not None else 0.0

    def _forget_some(self) -> None:
        while len(self._clients) > _CLIENTS:
            oldest = next((name for name, client in self._clients.items() if not client.under_way), None)
            if oldest is None:
                return
            del self._clients[oldest]


class _Client:
    __slots__ = ("at", "tokens", "under_way")

    def __init__(self, tokens: float) -> None:
        self.tokens, self.at, self.under_way = tokens, time.monotonic(), 0

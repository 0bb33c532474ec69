"""Access control: identifies and admits the caller of each request, and writes the audit log.

If keys are required, only health checks are open to everybody. A key is sent as `Authorization: Bearer
KEY`, as `X-API-Key`, or as the password of Basic authentication with any user name: a browser that opens
the page asks for that password and sends it with everything that the page loads.
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from kbqa.telemetry.logs import logged
from kbqa.telemetry.metrics import Metrics
from services.access.counts import Counts
from services.access.credentials import address_of, password_of, presented_key
from services.access.errors import AccessError, CrossSiteError, GraphForbiddenError, RateExceededError
from services.access.guard import OPEN_PATHS, with_challenge
from services.access.keys import EVERY_GRAPH, KeyRecord, Keys
from services.access.sites import READING, from_another_site
from services.gateway.access.audit import AuditEntry, AuditLog
from services.gateway.access.errors import GATEWAY_ACCESS_STATUS, QuotaExceededError
from services.http import domain_response, error_kind

_ASKING_PATHS = frozenset({"/text2sparql"})  # where even a GET costs quota


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        owner: id of its key, which owns the answers and the feedback of this caller; empty if no keys are
            required.
        name: that of its key; empty without.
        counted_as: name under which its requests are counted.
        graphs: graphs that it may ask about; None for all.
        rate, quota: its limits.
        min_confidence: confidence and presence below which answers are withheld from it, unless its request
            names another.
    """

    owner: str
    name: str
    counted_as: str
    graphs: frozenset[str] | None
    rate: str | None
    quota: str | None
    min_confidence: float

    def may_ask(self, kg: str) -> bool:
        return self.graphs is None or kg in self.graphs

    def may_ask_part_of(self, kg: str) -> bool:
        """Whether it may ask about a graph or a view (GRAPH@VIEW) of it."""
        return self.graphs is None or any(kg in (mine, mine.partition("@")[0]) for mine in self.graphs)

    def require(self, kg: str) -> None:
        """Check that it may ask about a graph.

        Raises:
            GraphForbiddenError: its key is restricted to other graphs.
        """
        if self.graphs is not None and kg not in self.graphs:
            raise GraphForbiddenError(kg, self.graphs)


class Callers:
    """Tells who calls.

    Args:
        keys: accepted keys; None admits everybody.
        rate, quota: limits of callers without limits of their own.
        min_confidence: that of callers without one of their own.
    """

    def __init__(
        self, keys: Keys | None, *, rate: str | None, quota: str | None, min_confidence: float
    ) -> None:
        self.keys, self._rate, self._quota, self._min_confidence = keys, rate, quota, min_confidence

    def without_key(self, counted_as: str) -> Caller:
        """A caller of a gateway that requires no keys."""
        return Caller("", "", counted_as, None, self._rate, self._quota, self._min_confidence)

    def of_record(self, record: KeyRecord) -> Caller:
        """The caller with a key."""
        graphs = None if EVERY_GRAPH in record.graphs else frozenset(record.graphs)
        least = self._min_confidence if record.min_confidence is None else record.min_confidence
        rate, quota = record.rate or self._rate, record.quota or self._quota
        return Caller(record.id, record.name, record.id, graphs, rate, quota, least)

    def of_owner(self, owner: str, counted_as: str) -> Caller:
        """Who sent something earlier that the gateway works on now, with the rights of now.

        Raises:
            KeyRequiredError, KeyExpiredError, KeyRevokedError: the owner's key is no longer valid.
        """
        return self.without_key(counted_as) if self.keys is None else self.of_record(self.keys.by_id(owner))


class AccessControl:
    """ASGI middleware that admits callers up to their rate limit and audits every request.

    It stores the `caller` and the audit log's `entry` in the scope's state; routes complete the entry.

    Args:
        open_routes: routes that need no key.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        open_routes: Sequence[BaseRoute],
        counts: Counts,
        audit: AuditLog,
        metrics: Metrics,
    ) -> None:
        self._app, self._callers, self._counts, self._audit = app, callers, counts, audit
        self._open_routes = open_routes
        self._refusals = metrics.counter("kbqa_gateway_refusals_total")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        entry = AuditEntry(str(logged("request_id") or ""), scope["method"], address_of(scope.get("client")))
        started = time.perf_counter()

        async def watch(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                entry.status = message["status"]
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                entry.complete = True

        try:
            await self._answer(scope, receive, watch, entry)
        finally:
            entry.route = getattr(scope.get("route"), "path", None)
            entry.elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
            self._audit.write(entry)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, entry: AuditEntry) -> None:
        if self._callers.keys is not None and any(
            r.matches(scope)[0] is Match.FULL for r in self._open_routes
        ):
            await self._app(scope, receive, send)
            return
        try:
            caller = self._caller(scope, entry)
            wait_s = await self._counts.take(caller.rate, "requests", caller.counted_as)
            if wait_s is not None:
                raise RateExceededError(str(caller.rate), wait_s)
        except AccessError as error:
            await self._refused(error, scope, entry)(scope, receive, send)
            return
        scope.setdefault("state", {}).update(caller=caller, entry=entry)
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope, entry: AuditEntry) -> Caller:
        if self._callers.keys is None:
            return self._callers.without_key(entry.address)
        headers = Headers(scope=scope)
        password = password_of(headers)
        only_reads = scope["method"] in READING and scope["path"] not in _ASKING_PATHS
        if password is not None and not only_reads and from_another_site(headers):
            raise CrossSiteError
        record = self._callers.keys.find(password if password is not None else presented_key(headers))
        entry.key, entry.key_name = record.id, record.name
        return self._callers.of_record(record)

    def _refused(self, error: AccessError, scope: Scope, entry: AuditEntry) -> Response:
        entry.refusal = error_kind(type(error))
        self._refusals.labels(entry.refusal).inc()
        return with_challenge(domain_response(error, GATEWAY_ACCESS_STATUS), Headers(scope=scope))


def caller_of(request: Request) -> Caller:
    """The caller of an admitted request; a dependency of routes."""
    caller = request.scope["state"]["caller"]
    assert isinstance(caller, Caller)
    return caller


def entry_of(request: Request) -> AuditEntry:
    """The audit log's entry of a request, which its route completes; a dependency of routes."""
    entry = request.scope["state"]["entry"]
    assert isinstance(entry, AuditEntry)
    return entry


def require_every_graph(request: Request) -> None:
    """Refuse a caller whose key is restricted to some graphs; a dependency of routes about all graphs.

    Raises:
        GraphForbiddenError: the key is restricted.
    """
    graphs = caller_of(request).graphs
    if graphs is not None:
        raise GraphForbiddenError(EVERY_GRAPH, graphs)


class Quotas:
    """Checks that need the question: its graph, and the caller's quota."""

    def __init__(self, counts: Counts, metrics: Metrics) -> None:
        self._counts = counts
        self._refusals = metrics.counter("kbqa_gateway_refusals_total")

    def require_graph(self, caller: Caller, kg: str) -> None:
        """Check that a caller may ask about a graph.

        Raises:
            GraphForbiddenError: its key is restricted to other graphs.
        """
        try:
            caller.require(kg)
        except GraphForbiddenError:
            self._refusals.labels("graph-forbidden").inc()
            raise

    async def spend(self, caller: Caller) -> None:
        """Count a question towards the caller's quota.

        Raises:
            QuotaExceededError: the quota is used up.
            CountsUnavailableError: the question must be counted, but Redis does not answer.
        """
        wait_s = await self._counts.take(caller.quota, "questions", caller.counted_as)
        if wait_s is not None:
            self._refusals.labels("quota-exceeded").inc()
            raise QuotaExceededError(str(caller.quota), wait_s)

"""Executes SPARQL queries with a cache, a limit of concurrent queries, and coalescing of equal ones.

The SPARQL route and the actions share one `Queries`; an action uses it through the `query` method of its
store (`GuardedStore`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import anyio

from kbqa.errors import GraphError, QuerySyntaxError
from kbqa.kg.sparql.guard import CheckedQuery, QueryResult, ResultFormat, check_query
from kbqa.kg.store import GraphStore
from kbqa.kg.time_limits import left_s
from kbqa.telemetry.metrics import Metrics
from services.kg_server.cache import Cache, cache_key
from services.kg_server.callers import Caller
from services.kg_server.flights import Flights
from services.kg_server.gate import AdmissionGate

# Threads in addition to those that run or wait: a further request needs one to be rejected.
_SPARE_THREADS = 8

T = TypeVar("T")


class Threads:
    """Thread pool large enough that calls waiting at a gate never starve others."""

    def __init__(self, *gates: AdmissionGate) -> None:
        self._size = sum(gate.places + gate.queue + _SPARE_THREADS for gate in gates)
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, work: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._size)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


@dataclass(frozen=True, slots=True)
class QuerySource:
    """The graph that a query is sent to.

    Attributes:
        kg: name of the graph.
        store: store of one version of the graph, or of a subgraph.
        graph: id of the per-question subgraph that `store` is; None for the whole graph.
    """

    kg: str
    store: GraphStore
    graph: str | None = None


class Queries:
    """Executes queries of all graphs.

    Args:
        gate: admits queries that this server's processes execute.
        remote_gate: admits queries to endpoints.
        limits: maximum rows and bytes of a result; part of the cache key, because results depend on them.
        wait_s: maximum time that a query waits for its turn, in seconds.
    """

    def __init__(
        self,
        cache: Cache,
        gate: AdmissionGate,
        remote_gate: AdmissionGate,
        metrics: Metrics,
        *,
        limits: tuple[int, int],
        wait_s: float,
    ) -> None:
        self._cache, self._gate, self._remote_gate = cache, gate, remote_gate
        self._limits, self._wait_s = limits, wait_s
        self._threads = Threads(gate, remote_gate)
        self._flights: Flights[QueryResult] = Flights()
        self._outcomes = metrics.counter("kbqa_kg_queries_total")
        self._running = metrics.gauge("kbqa_kg_queries_running")
        metrics.gauge("kbqa_kg_queries_waiting").set_function(lambda: gate.waiting + remote_gate.waiting)

    async def answer(
        self,
        source: QuerySource,
        query: CheckedQuery,
        result: ResultFormat,
        caller: Caller,
        *,
        deadline_s: float,
    ) -> tuple[QueryResult, bool]:
        """`run` for the event loop; takes a thread only if the result is neither cached nor in progress."""
        key = self._key(source, query, result)
        if not (query.volatile or caller.fresh):
            value = self._cache.recall(key, "sparql")
            if value is not None:
                return _decode(value, result), True
            flight = self._flights.running((key, deadline_s))
            if flight is not None:
                return await asyncio.wrap_future(flight), False
        return await self._threads.run(lambda: self.run(source, query, result, caller, deadline_s=deadline_s))

    def run(
        self,
        source: QuerySource,
        query: CheckedQuery,
        result: ResultFormat,
        caller: Caller,
        *,
        deadline_s: float,
        action: str = "sparql",
    ) -> tuple[QueryResult, bool]:
        """Execute a query, or return its cached result.

        Args:
            deadline_s: seconds for the query itself, not counting the wait for its turn.
            action: label of the cache look-up in the metrics.

        Returns:
            The result, and whether it comes from the cache.

        Raises:
            QueryError, GraphUnavailableError: as `GraphStore.query`.
        """
        if query.volatile:
            return self._execute(source, query, result, caller, deadline_s), False
        key = self._key(source, query, result)
        value = None if caller.fresh else self._cache.get(key, action)
        if value is not None:
            return _decode(value, result), True

        def compute() -> QueryResult:
            try:
                computed = self._execute(source, query, result, caller, deadline_s)
            except QuerySyntaxError as error:
                self._keep(key, {"syntax": str(error)}, b"", caller)
                raise
            self._keep(key, {"rows": computed.rows, "truncated": computed.truncated}, computed.body, caller)
            return computed

        # A query with less time must not share its result with a query that has more.
        return self._flights.run((key, deadline_s), compute), False

    def _execute(
        self,
        source: QuerySource,
        query: CheckedQuery,
        result: ResultFormat,
        caller: Caller,
        deadline_s: float,
    ) -> QueryResult:
        outcome = "failed"
        gate = self._remote_gate if source.store.is_remote else self._gate
        try:
            with gate.place(caller.client, wait_s=self._wait_s):
                self._running.inc()
                try:
                    answer = source.store.query(query.text, result=result, deadline_s=deadline_s)
                finally:
                    self._running.dec()
            outcome = "truncated" if answer.truncated else "ok"
            return answer
        except GraphError as error:
            outcome = type(error).__name__.removesuffix("Error")
            raise
        finally:
            self._outcomes.labels(outcome).inc()

    def _keep(self, key: str, head: dict[str, Any], body: bytes, caller: Caller) -> None:
        if not caller.private:
            self._cache.put(key, json.dumps(head).encode() + b"\n" + body)

    def _key(self, source: QuerySource, query: CheckedQuery, result: ResultFormat) -> str:
        parts = (source.graph, query.canonical, result.value, self._limits)
        return cache_key(source.kg, source.store.version, "sparql", *parts)


class Trace:
    """Records the queries of one action: how many, how many from the cache, and whether any is volatile."""

    def __init__(self) -> None:
        self.asked = self.cached = 0
        self.volatile = False

    def add(self, query: CheckedQuery, cached: bool) -> None:
        self.asked += 1
        self.cached += cached
        self.volatile = self.volatile or query.volatile


class GuardedStore:
    """A `GraphStore` whose queries go through `Queries`; everything else is delegated to the store.

    Args:
        until: `time.monotonic()` at which queries end, even if their own deadline is later.
        action: name of the action that uses the store, for metrics.
    """

    def __init__(
        self, source: QuerySource, queries: Queries, caller: Caller, until: float, action: str, trace: Trace
    ) -> None:
        self._source, self._queries, self._caller = source, queries, caller
        self._until, self._action, self._trace = until, action, trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source.store, name)

    def subgraph(self, graph: str) -> GraphStore | None:
        store = self._source.store.subgraph(graph)
        if store is None:
            return None
        source = replace(self._source, store=store, graph=graph)
        guarded = GuardedStore(source, self._queries, self._caller, self._until, self._action, self._trace)
        return cast(GraphStore, guarded)

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        query = check_query(text)
        result = result or query.default_format
        remaining_s = left_s(self._until)
        answer, cached = self._queries.run(
            self._source,
            query,
            result,
            self._caller,
            deadline_s=min(deadline_s, remaining_s),
            action=self._action,
        )
        self._trace.add(query, cached)
        return answer


def _decode(value: bytes, result: ResultFormat) -> QueryResult:
    encoded, _, body = value.partition(b"\n")
    head = json.loads(encoded)
    if "syntax" in head:
        raise QuerySyntaxError(head["syntax"])
    return QueryResult(body, result, head["rows"], head["truncated"])

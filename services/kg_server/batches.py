"""Executes batches that need more than look-ups in memory: in threads, a few at a time, with a deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import orjson

from kbqa.kg.actions import Action, ActionResult, ErrorKind, Success
from kbqa.kg.client import parse_result
from kbqa.kg.handlers import Surroundings, failure
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.specs import Cost
from kbqa.kg.store import GraphStore
from kbqa.kg.time_limits import look_ups_before
from kbqa.kg.tools import execute
from services.kg_server.cache import Cache, cache_key
from services.kg_server.callers import Caller
from services.kg_server.flights import Flights
from services.kg_server.gate import AdmissionGate
from services.kg_server.queries import GuardedStore, Queries, QuerySource, Threads, Trace
from services.kg_server.schemas import dump_result

logger = logging.getLogger(__name__)

# Seconds that a batch has besides one query of the usual length. Its first query then has all of its time,
# and shares its result with the same query of other batches.
_BESIDES_S = 5.0


class CostlyBatches:
    """Executes batches, a few at a time.

    The result of an action is cached by the graph's version, the action and `profile`. For an action that
    runs a query, `Queries` caches the query's result instead.

    Args:
        gate: admits batches; their queries also pass the gate of `queries`.
        deadline_s: seconds for a batch from its arrival, more if a query on its graph may take as long. What
            its actions ask for by `timeout_s` is added. Actions that have not begun by then, and queries that
            are cut short, result in timeouts.
        profile: everything else that results depend on: limits, the encoder and its thresholds.
    """

    def __init__(
        self, queries: Queries, cache: Cache, gate: AdmissionGate, *, deadline_s: float, profile: str
    ) -> None:
        self._queries, self._cache, self._gate = queries, cache, gate
        self._deadline_s, self._profile = deadline_s, profile
        self._threads = Threads(gate)
        self._flights: Flights[ActionResult] = Flights()

    async def run(
        self,
        kg: str,
        surroundings: Surroundings,
        batch: Sequence[Action],
        graph: str | None,
        caller: Caller,
    ) -> list[ActionResult]:
        """The results of a batch, in order.

        Raises:
            QueryOverloadError: too many batches are waiting, or its turn did not come in time.
        """
        usual_s = self._deadline_s
        if surroundings.deadline_s >= usual_s:
            usual_s = surroundings.deadline_s + _BESIDES_S
        deadline_s = usual_s + sum(_asked_s(surroundings, action) for action in batch)
        until = time.monotonic() + deadline_s
        asked = _Asked(kg, surroundings, graph, caller, deadline_s, until)

        def work() -> list[ActionResult]:
            with self._gate.place(caller.client, wait_s=until - time.monotonic()):
                return [self._one(asked, action) for action in batch]

        return await self._threads.run(work)

    def _one(self, asked: _Asked, action: Action) -> ActionResult:
        if time.monotonic() >= asked.until:
            message = f"not executed: the batch had used up its {asked.deadline_s:g} s; send fewer actions"
            return failure(ErrorKind.QUERY_TIMEOUT, message)
        spec = ACTIONS.find(action.name)
        cost = None if spec is None else spec.cost_of(action.arguments)
        in_memory = cost is Cost.LOOK_UP and not asked.surroundings.store.is_remote
        if spec is None or in_memory or spec.check(action.arguments) is not None:
            return execute(asked.surroundings, [action], graph=asked.graph)[0]
        if cost is not Cost.QUERY:
            return self._kept(asked, action)
        result, trace = self._execute(asked, action)
        from_cache = trace.asked > 0 and trace.cached == trace.asked
        return replace(result, cached=from_cache) if isinstance(result, Success) else result

    def _kept(self, asked: _Asked, action: Action) -> ActionResult:
        """The result from the cache, or from executing the action; cached if it is lasting."""
        started = time.perf_counter()
        surroundings = asked.surroundings
        parts = (asked.graph, dict(action.arguments), self._profile)
        key = cache_key(asked.kg, surroundings.store.version, action.name, *parts)
        value = None if asked.caller.fresh else self._cache.get(key, action.name)
        if value is not None:
            result = parse_result(action, orjson.loads(value))
            if isinstance(result, Success):
                elapsed_ms = (time.perf_counter() - started) * 1000
                result = replace(result, cached=True, elapsed_ms=elapsed_ms)
            return result

        def compute() -> ActionResult:
            result, trace = self._execute(asked, action)
            if isinstance(result, Success):
                lasting = not result.details.get("timed_out")  # another time it may find more
            else:
                lasting = not result.kind.is_transient
            if lasting and not trace.volatile and not asked.caller.private:
                self._cache.put(key, orjson.dumps(dump_result(result)))
            return result

        # A batch that is short of time must not share its result with a batch that is not.
        in_time = asked.until - time.monotonic() >= surroundings.allowed_s(action.arguments)
        return self._flights.run((key, in_time), compute)

    def _execute(self, asked: _Asked, action: Action) -> tuple[ActionResult, Trace]:
        trace = Trace()
        source = QuerySource(asked.kg, asked.surroundings.store)
        store = GuardedStore(source, self._queries, asked.caller, asked.until, action.name, trace)
        guarded = replace(asked.surroundings, store=cast(GraphStore, store))
        try:
            with look_ups_before(asked.until):
                return execute(guarded, [action], graph=asked.graph)[0], trace
        except Exception:
            # An error in one action must not affect the others.
            logger.exception("action failed", extra={"action": action.name})
            return failure(ErrorKind.QUERY_FAILED, "internal error; the server's log has the details"), trace


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all actions of a batch share; it has `deadline_s` seconds, until `until` (`time.monotonic()`)."""

    kg: str
    surroundings: Surroundings
    graph: str | None
    caller: Caller
    deadline_s: float
    until: float


def _asked_s(surroundings: Surroundings, action: Action) -> float:
    """Seconds that an action asks for; 0 if it does not, or not properly."""
    spec = ACTIONS.find(action.name)
    if "timeout_s" not in action.arguments or spec is None or spec.check(action.arguments) is not None:
        return 0.0
    return surroundings.allowed_s(action.arguments)

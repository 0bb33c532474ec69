"""Graph actions executed in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Protocol

from kbqa.errors import GraphUnavailableError, QueryError
from kbqa.kg.actions import Action, ActionResult, ErrorKind, GraphTools, Success
from kbqa.kg.handlers import (
    MAX_ITEMS,
    Surroundings,
    failure,
    invalid_action,
    other_encoder,
    quote,
    store_failure,
)
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.ranking.ranker import Schemas
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.store import GraphInfo, Graphs
from kbqa.kg.time_limits import look_ups_within


class ListedGraphTools(GraphTools, Protocol):
    """Graph tools that can list the graphs."""

    def graphs(self) -> list[GraphInfo]:
        """The graphs that are loaded.

        Raises:
            GraphUnavailableError: the server cannot be reached.
        """
        ...


class LocalGraphTools:
    """`GraphTools` over graphs in this process.

    Args:
        graphs: a `GraphCatalog`, or `FixedGraphs`.
        schemas: rank relations and types; if None, by character n-grams.
        max_items: maximum items of a result, and the default of the `limit` argument.
        deadline_s: seconds that a query of an action may run, unless the graph has a deadline of its own.
        longest_s: seconds that an action may ask for by `timeout_s`; None allows no more than its deadline.
    """

    def __init__(
        self,
        graphs: Graphs,
        *,
        schemas: Schemas | None = None,
        max_items: int = MAX_ITEMS,
        deadline_s: float = 3.0,
        longest_s: float | None = None,
    ) -> None:
        self._graphs, self._schemas = graphs, schemas or Schemas(NgramEncoder())
        self._max_items, self._deadline_s, self._longest_s = max_items, deadline_s, longest_s

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        return self.execute_at(kg, actions, graph=graph)[0]

    def execute_at(
        self, kg: str, actions: Sequence[Action], *, graph: str | None = None
    ) -> tuple[list[ActionResult], str]:
        store = self._graphs.get(kg)
        deadline_s = store.query_deadline_s or self._deadline_s
        schema = self._schemas.of(store)
        surroundings = Surroundings(store, schema, self._max_items, deadline_s, self._longest_s)
        return execute(surroundings, actions, graph=graph), store.version

    def graphs(self) -> list[GraphInfo]:
        """The graphs that are loaded."""
        return self._graphs.list()


def execute(
    surroundings: Surroundings, actions: Sequence[Action], *, graph: str | None = None
) -> list[ActionResult]:
    """Execute actions over one graph, in order, one result each; a store's errors become failures.

    Args:
        graph: id of the per-question subgraph that restricts the actions.
    """
    if graph is None:
        return [_execute(surroundings, action, None) for action in actions]
    subgraph = surroundings.store.subgraph(graph)
    if subgraph is not None:
        surroundings = replace(surroundings, store=subgraph)
    missing = graph if subgraph is None else None
    return [_execute(surroundings, action, missing) for action in actions]


def _execute(surroundings: Surroundings, action: Action, missing_sample: str | None) -> ActionResult:
    started = time.perf_counter()
    spec = ACTIONS.find(action.name)
    if spec is None:
        return invalid_action(action.name)
    wrong = spec.check(action.arguments)
    if wrong is not None:
        return wrong
    if "encoder" in action.arguments:
        wrong = other_encoder(surroundings, action.arguments["encoder"])
        if wrong is not None:
            return wrong
    if missing_sample is not None:
        return failure(ErrorKind.SAMPLE_MISSING, f"Sample {quote(missing_sample)} not found in KG")
    timed = "timeout_s" in action.arguments
    if timed:
        surroundings = replace(surroundings, deadline_s=surroundings.allowed_s(action.arguments))
    try:
        with look_ups_within(surroundings.deadline_s) if timed else nullcontext():
            result = spec.run(surroundings, action.arguments)
    except (QueryError, GraphUnavailableError) as error:
        failed = store_failure(error)
        if timed and failed.kind is ErrorKind.QUERY_TIMEOUT:
            return replace(failed, details={**failed.details, "timeout_s": surroundings.deadline_s})
        return failed
    if isinstance(result, Success):
        elapsed_ms = (time.perf_counter() - started) * 1000
        # `replace` would take as long as the look-up itself.
        return Success(
            result.items, result.total, result.truncated, result.cached, elapsed_ms, result.details
        )
    return result

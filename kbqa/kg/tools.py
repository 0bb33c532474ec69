"""Graph actions executed in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from kbqa.errors import GraphUnavailableError, QueryError
from kbqa.kg.actions import Action, ActionResult, ErrorKind, GraphTools, Success
from kbqa.kg.handlers import MAX_ITEMS, Surroundings, failure, invalid_action, quote, store_failure
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.ranking.ranker import Schemas
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.store import GraphInfo, Graphs


class ListedGraphTools(GraphTools, Protocol):
    """Graph tools that say which graphs there are."""

    def graphs(self) -> list[GraphInfo]:
        """What is loaded.

        Raises:
            GraphUnavailableError: they cannot be reached.
        """
        ...


class LocalGraphTools:
    """`GraphTools` over graphs in this process.

    Args:
        graphs: where they are: a `GraphCatalog`, or `FixedGraphs`.
        schemas: rank their relations and types; by character n-grams when None.
        max_items: items of a result at most, and without a `limit` argument.
        deadline_s: seconds that a query of an action may run.
    """

    def __init__(
        self,
        graphs: Graphs,
        *,
        schemas: Schemas | None = None,
        max_items: int = MAX_ITEMS,
        deadline_s: float = 3.0,
    ) -> None:
        self._graphs, self._schemas = graphs, schemas or Schemas(NgramEncoder())
        self._max_items, self._deadline_s = max_items, deadline_s

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        store = self._graphs.get(kg)
        surroundings = Surroundings(store, self._schemas.of(store), self._max_items, self._deadline_s)
        return execute(surroundings, actions, graph=graph)

    def graphs(self) -> list[GraphInfo]:
        """What is loaded."""
        return self._graphs.list()


def execute(
    surroundings: Surroundings, actions: Sequence[Action], *, graph: str | None = None
) -> list[ActionResult]:
    """Execute actions over one graph, in order, one result each; raises nothing of its own.

    Args:
        graph: id of the per-question subgraph that restricts them.
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
    if missing_sample is not None:
        return failure(ErrorKind.SAMPLE_MISSING, f"Sample {quote(missing_sample)} not found in KG")
    try:
        result = spec.run(surroundings, action.arguments)
    except (QueryError, GraphUnavailableError) as error:
        return store_failure(error)
    if isinstance(result, Success):
        elapsed_ms = (time.perf_counter() - started) * 1000
        # Not by `replace`, which takes as long as the look-up.
        return Success(
            result.items, result.total, result.truncated, result.cached, elapsed_ms, result.details
        )
    return result

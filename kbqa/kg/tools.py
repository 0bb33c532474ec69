"""Graph actions executed in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from kbqa.errors import GraphUnavailableError, QueryError
from kbqa.kg.actions import LINK_ENTITIES, Action, ActionResult, ErrorKind, GraphTools, Success
from kbqa.kg.handlers import (
    MAX_ITEMS,
    TEXT,
    Handler,
    Kind,
    Surroundings,
    failure,
    invalid_action,
    paging,
    quote,
    store_failure,
)
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.ranking.ranker import Schemas
from kbqa.kg.retrieval import (
    describe,
    distance,
    execute_sparql,
    find_relation,
    follow_path,
    graph_patterns,
    node_relations,
    one_hop,
    type_search,
)
from kbqa.kg.store import GraphInfo, Graphs


def _link_entities(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    limit, offset = paging(surroundings, arguments)
    mentions = tuple(surroundings.store.link(arguments["question"]))
    page = mentions[offset : offset + limit]
    return Success(page, len(mentions), truncated=offset + len(page) < len(mentions))


# Linking takes time with the square of the length.
_MAX_QUESTION_CHARS = 8000
_QUESTION = Kind(
    lambda value: TEXT.fits(value) and len(value) <= _MAX_QUESTION_CHARS,
    f"a text of at most {_MAX_QUESTION_CHARS} characters",
)

# Every action there is; a module of actions adds its table here.
HANDLERS: Mapping[str, Handler] = {
    **one_hop.HANDLERS,
    **find_relation.HANDLERS,
    **type_search.HANDLERS,
    **graph_patterns.HANDLERS,
    **execute_sparql.HANDLERS,
    **node_relations.HANDLERS,
    **distance.HANDLERS,
    **describe.HANDLERS,
    **follow_path.HANDLERS,
    LINK_ENTITIES: Handler(_link_entities, {"question": _QUESTION}, accepts="only one question argument"),
}


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
    name, arguments = action.name, action.arguments
    handler = HANDLERS.get(name) if isinstance(name, str) else None
    if handler is None:
        return invalid_action(name)
    wrong = handler.check(name, arguments)
    if wrong is not None:
        return wrong
    if missing_sample is not None:
        return failure(ErrorKind.SAMPLE_MISSING, f"Sample {quote(missing_sample)} not found in KG")
    try:
        result = handler.run(surroundings, arguments)
    except (QueryError, GraphUnavailableError) as error:
        return store_failure(error)
    if isinstance(result, Success):
        elapsed_ms = (time.perf_counter() - started) * 1000
        # Not by `replace`, which takes as long as the look-up.
        return Success(
            result.items, result.total, result.truncated, result.cached, elapsed_ms, result.details
        )
    return result

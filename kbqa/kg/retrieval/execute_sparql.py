"""`execute_sparql`: the solutions of a query, for KnowCoder-A1 and Learning-to-Refine.

A row is one solution: variable → term in the form of SPARQL's JSON results, with a `label`
and the `id` that actions accept. An error in a query is returned as a `Failure`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbqa.kg.actions import EXECUTE_SPARQL, ActionResult, ErrorKind, Row, Success
from kbqa.kg.arguments import TERMS, TEXT, Argument
from kbqa.kg.handlers import Surroundings, failure, paging
from kbqa.kg.sparql.guard import check_query
from kbqa.kg.specs import ACTIONS, ActionSpec, Cost
from kbqa.kg.store import GraphStore

_NODES = ("uri", "bnode")


@dataclass(frozen=True, slots=True)
class Solutions:
    """The result of a SELECT or ASK.

    Attributes:
        variables: of a SELECT, in its order.
        bindings: for each solution, variable → term in the form of SPARQL's JSON results.
        boolean: the answer to an ASK; None for a SELECT.
        truncated: whether the store cut the solutions.
    """

    variables: tuple[str, ...] = ()
    bindings: tuple[Row, ...] = ()
    boolean: bool | None = None
    truncated: bool = False


def solve(store: GraphStore, query: str, *, deadline_s: float) -> Solutions:
    """Execute a SELECT or ASK.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.query`.
    """
    result = store.query(query, deadline_s=deadline_s)
    answer = json.loads(result.body)
    if "boolean" in answer:
        return Solutions(boolean=answer["boolean"])
    bindings = tuple(answer["results"]["bindings"])
    return Solutions(tuple(answer["head"]["vars"]), bindings, truncated=result.truncated)


def with_labels(store: GraphStore, bindings: Sequence[Row]) -> tuple[Row, ...]:
    """Add `id` and `label` to all terms; a literal's label is its value, a nameless node's its id."""
    ids = {(name, row): store.id_of(term) for row, name, term in _terms(bindings)}
    # Only nodes are looked up: Virtuoso fails at some literals that are its own answers, such as coordinates.
    nodes = (ids[name, row] for row, name, term in _terms(bindings) if term["type"] in _NODES)
    items = store.items(list(dict.fromkeys(nodes)))
    rows: list[dict[str, Mapping[str, str]]] = [{} for _ in bindings]
    for row, name, term in _terms(bindings):
        id_ = ids[name, row]
        value = id_ if term["type"] in _NODES else term["value"]
        label = items[id_].label if id_ in items else value
        rows[row][name] = {**term, "id": id_, "label": label}
    return tuple(rows)


def _terms(bindings: Sequence[Row]) -> list[tuple[int, str, Mapping[str, str]]]:
    return [(row, name, term) for row, found in enumerate(bindings) for name, term in found.items()]


def _execute_sparql(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    query = arguments["query"]
    checked = check_query(query)
    if checked.returns_graph:
        return failure(
            ErrorKind.QUERY_REFUSED, f"{checked.form} makes a graph: ask for its rows with SELECT instead"
        )
    found = solve(surroundings.store, query, deadline_s=surroundings.deadline_s)
    if found.boolean is not None:
        return Success((), 0, details={"boolean": found.boolean})
    limit, offset = paging(surroundings, arguments)
    rows = with_labels(surroundings.store, found.bindings[offset : offset + limit])
    total = len(found.bindings)
    return Success(
        rows,
        total,
        truncated=found.truncated or offset + len(rows) < total,
        details={"variables": list(found.variables)},
    )


ACTIONS.register(
    ActionSpec(
        EXECUTE_SPARQL,
        "Execute a read-only SPARQL 1.1 query (SELECT or ASK) and return its rows. It is stopped after a few "
        "seconds: constrain it well and use LIMIT. An error says where the query is wrong.",
        _execute_sparql,
        {"query": Argument(TEXT, "the query")},
        {"timeout_s": TERMS["timeout_s"]},
        item=None,
        answers="Rows: variable → its term as SPARQL's JSON results write it, with the `id` that an action "
        "accepts and its `label`. Details: of a SELECT `variables`, in their order; of an ASK `boolean`, "
        "and there are no rows; of a syntax error `line` and `column`.",
        cost=Cost.QUERY,
        errors=(ErrorKind.QUERY_SYNTAX, ErrorKind.QUERY_REFUSED),
    )
)

"""Set F1, the measure of the TEXT2SPARQL challenge (https://text2sparql.aksw.org), as its client computes it.

The client (`text2sparql-client` 2.1, `utils/evaluation_metrics.py`) executes the gold query and the query of
the system, and compares their results by trec_eval's `set_F`:

- The values of a SELECT are the set of all values in all columns and rows, without datatype and language.
  They have neither order nor frequency.
- The value of an ASK is "true", whatever it answers. It is relevant only if the gold query answers true.
- P and R are the shares of the system's values that are gold, and of the gold values that the system has;
  F1 = 2PR / (P + R), or 0 if both are 0. It is 0 for a query that fails, for no query, and for every
  question whose gold ASK answers false.
- The reported number is the mean over questions. trec_eval leaves out those whose gold query has no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbqa.errors import GraphUnavailableError
from kbqa.evidence import Claims, confirmed, query_behind
from kbqa.kg.actions import EXECUTE_SPARQL, Action, ErrorKind, Failure, GraphTools
from kbqa.trajectory import Question, Trajectory

_PAGE = 1000  # rows that are fetched at once
_UNREACHED = (ErrorKind.OVERLOADED, ErrorKind.BACKEND_UNAVAILABLE)


class Values(NamedTuple):
    """What a query finds.

    Attributes:
        found: the values of its result; none if the query fails.
        answer: of an ASK; None for a SELECT.
    """

    found: frozenset[str] = frozenset()
    answer: bool | None = None


def set_f1_of(question: Question, runs: Sequence[Trajectory], tools: GraphTools) -> float | None:
    """Set F1 of the query behind the runs' answers; None if the question is left out of the mean.

    Raises:
        GraphNotFoundError, GraphUnavailableError: a query could not be executed.
    """
    kg, graph = question.kg, question.graph
    gold = values_of(question.sparql, tools, kg, graph) if question.sparql else Values()
    if gold.answer is None and not gold.found:
        return None
    answers = confirmed(runs, frozenset(question.topic_entities), Claims(tools, kg, graph))
    query = query_behind(((answer.id, answer.evidence) for answer in answers), tools, kg, graph)
    return set_f1(Values() if query is None else values_of(query, tools, kg, graph), gold)


def set_f1(system: Values, gold: Values) -> float:
    """Set F1 of the values that a system's query finds."""
    relevant = frozenset[str]() if gold.answer is False else gold.found
    both = len(system.found & relevant)
    return 2 * both / (len(system.found) + len(relevant)) if both else 0.0


def values_of(query: str, tools: GraphTools, kg: str, graph: str | None = None) -> Values:
    """What a query finds in a graph.

    Raises:
        GraphNotFoundError, GraphUnavailableError: the query could not be executed.
    """
    found, offset, more = set[str](), 0, True
    while more:
        action = Action(EXECUTE_SPARQL, {"query": query, "limit": _PAGE, "offset": offset})
        [result] = tools.execute(kg, [action], graph=graph)
        if isinstance(result, Failure):
            if result.kind in _UNREACHED:
                raise GraphUnavailableError(f"a query was not executed: {result.message}")
            return Values()
        if "boolean" in result.details:
            return Values(frozenset({"true"}), result.details["boolean"])
        found.update(term["value"] for row in result.items for term in row.values())
        offset += len(result.items)
        more = result.truncated and bool(result.items)
    return Values(frozenset(found))

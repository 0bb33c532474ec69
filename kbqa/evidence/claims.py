"""Checks claims: every cited triple and query is sent to the graph once more.

While answers are built, the claims that they cite are noted; `settle` checks all of them at once.
Until then a claim counts as true, so that only the preferred evidence is checked instead of all
alternatives. Answers are rebuilt until there is nothing left to check (`support.confirmed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbqa.evidence.retrieved import FollowedPath, Query
from kbqa.kg.actions import (
    EXECUTE_LOGICAL_FORM,
    EXECUTE_SPARQL,
    FOLLOW_PATH,
    GET_HEAD_ENTITIES,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    Action,
    ActionResult,
    ErrorKind,
    Failure,
    GraphTools,
    Row,
    Success,
    Triple,
    VersionedGraphTools,
)
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.store import MAX_VIAS
from kbqa.logical_forms.algebra import XSD

_MAX_ROWS = 10  # of a query that are cited for one answer
# A graph that could not answer has not said that a claim is false.
_UNREACHED = frozenset({ErrorKind.OVERLOADED, ErrorKind.BACKEND_UNAVAILABLE})
# The ids of true and false.
_BOOLEANS = {value: f'"{str(value).lower()}"^^<{XSD}boolean>' for value in (True, False)}


@dataclass(frozen=True, slots=True)
class CitedQuery:
    """A query, and its rows that contain an answer.

    Attributes:
        rows: variable → term in the form of SPARQL's JSON results, with `id` and `label`.
        boolean: the result of an ASK, which has no rows; None for other queries.
    """

    sparql: str
    rows: list[dict[str, dict[str, str]]]
    boolean: bool | None = None


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways along a path to a page of its ends, starting at `offset`."""

    walk: FollowedPath
    offset: int


class Claims:
    """The claims about one graph, for one question.

    Args:
        tools: query the graph.
        kg: name of the graph.
        graph: id of the per-question subgraph to which the runs were restricted.

    Attributes:
        kg_calls: number of actions sent to the graph.
        unreached: why the graph could not answer an action; claims that depend on it count as false.
            None if it answered all of them.
        versions: of the graph on which claims were checked, oldest first; empty where the tools do not tell.
    """

    def __init__(self, tools: GraphTools, kg: str, graph: str | None = None) -> None:
        self._tools, self._kg, self._graph = tools, kg, graph
        self._triples: dict[Triple, Triple | None] = {}
        self._queries: dict[Query, list[_Rows]] = {}
        self._ways: dict[_Ways, dict[str, list[Triple]]] = {}
        self._noted: dict[Triple | Query | _Ways, None] = {}
        self._closed = False
        self.kg_calls = 0
        self.unreached: str | None = None
        self.versions: list[str] = []

    def close(self) -> None:
        """Stop checking, for lack of time: from now on, claims that are not settled count as false."""
        self._closed = True

    def chain(self, triples: Sequence[Triple]) -> list[Triple] | None:
        """The triples with ids in place of labels; None if one of them is not in the graph."""
        if not triples:
            return None
        told = list[Triple]()
        for triple in triples:
            if triple not in self._triples:
                if not self._note(triple):
                    return None
                told.append(triple)
            elif (found := self._triples[triple]) is not None:
                told.append(found)
            else:
                return None
        return told

    def way(self, walk: FollowedPath, place: int, answer: str) -> list[Triple] | None:
        """The triples of a way along a path to the end number `place`; None if there is no way."""
        asked = _Ways(walk, place - place % MAX_VIAS)
        if asked not in self._ways:
            return [] if self._note(asked) else None
        return self.chain(self._ways[asked].get(answer, ()))

    def rows(self, query: Query, answer: str) -> CitedQuery | None:
        """The query with its rows that contain the answer's id, or the ASK of which it is the result.

        None if there are no such rows, or the result is the other one.
        """
        if query not in self._queries:
            return CitedQuery(sparql=query.text, rows=[]) if self._note(query) else None
        for found in self._queries[query]:
            if rows := found.of(answer):
                return CitedQuery(sparql=found.sparql, rows=rows)
            if found.boolean is not None and answer == _BOOLEANS[found.boolean]:
                return CitedQuery(sparql=found.sparql, rows=[], boolean=found.boolean)
        return None

    def verdict(self, query: Query, boolean: bool) -> CitedQuery | None:
        """The ASK if its result is `boolean`, else None."""
        if query not in self._queries:
            return CitedQuery(sparql=query.text, rows=[], boolean=boolean) if self._note(query) else None
        for found in self._queries[query]:
            if found.boolean is boolean:
                return CitedQuery(sparql=found.sparql, rows=[], boolean=boolean)
        return None

    def _execute(self, actions: Sequence[Action]) -> list[ActionResult]:
        if not isinstance(self._tools, VersionedGraphTools):
            return self._tools.execute(self._kg, actions, graph=self._graph)
        results, version = self._tools.execute_at(self._kg, actions, graph=self._graph)
        if version not in self.versions:
            self.versions.append(version)
        return results

    def settle(self) -> bool:
        """Check all noted claims with the graph.

        Returns:
            Whether there were any.

        Raises:
            GraphNotFoundError, GraphUnavailableError: as `GraphTools.execute`.
        """
        noted, self._noted = list(self._noted), {}
        self._settle_ways([claim for claim in noted if isinstance(claim, _Ways)])
        self._settle_triples([claim for claim in noted if isinstance(claim, tuple)])
        self._settle_queries([claim for claim in noted if isinstance(claim, Query)])
        return bool(noted)

    def _note(self, claim: Triple | Query | _Ways) -> bool:
        if not self._closed:
            self._noted[claim] = None
        return not self._closed

    def _ask(self, actions: Sequence[Action]) -> list[ActionResult]:
        self.kg_calls += len(actions)
        results = self._execute(actions) if actions else []
        for result in results:
            if isinstance(result, Failure) and result.kind in _UNREACHED:
                self.unreached = result.message
        return results

    def _settle_triples(self, triples: Sequence[Triple]) -> None:
        # The triples of many answers share an end, which may be a hub, so look-ups are deduplicated.
        look_ups = list(dict.fromkeys(look_up for triple in triples for look_up in _look_ups(triple)))
        results = dict(zip(look_ups, self._ask([look_up.action() for look_up in look_ups]), strict=True))
        for triple in triples:
            self._triples[triple] = _in_graph(triple, *(results[look_up] for look_up in _look_ups(triple)))

    def _settle_ways(self, ways: Sequence[_Ways]) -> None:
        actions = [_followed(way) for way in ways]
        cites = ACTIONS[FOLLOW_PATH].cites
        assert cites is not None
        for way, action, result in zip(ways, actions, self._ask(actions), strict=True):
            self._ways[way] = {}
            if isinstance(result, Success):
                ends = [item.id for item in result.items]
                cited = cites(action.arguments, ends, result.details)
                self._ways[way] = {end: list(triples) for end, triples in zip(ends, cited, strict=True)}

    def _settle_queries(self, queries: Sequence[Query]) -> None:
        texts = {query: [query.text] for query in queries if not query.is_form}
        forms = [query for query in queries if query.is_form]
        for query, form in zip(forms, self._ask([_explained(query) for query in forms]), strict=True):
            texts[query] = list(form.details.get("sparql", ())) if isinstance(form, Success) else []
        asked = [(query, text) for query in queries for text in texts[query]]
        results = self._ask([Action(EXECUTE_SPARQL, {"query": text}) for _, text in asked])
        self._queries |= {query: [] for query in queries}
        for (query, text), result in zip(asked, results, strict=True):
            if isinstance(result, Success):
                self._queries[query].append(_Rows(text, result))


class _Rows:
    """The result of a query: rows by the ids that they contain, or the boolean of an ASK."""

    def __init__(self, sparql: str, found: Success[Row]) -> None:
        self.sparql = sparql
        self.boolean: bool | None = found.details.get("boolean")
        self._rows: dict[str, list[dict[str, dict[str, str]]]] = {}
        for row in found.items:
            for id_ in {term["id"] for term in row.values()}:
                rows = self._rows.setdefault(id_, [])
                if len(rows) < _MAX_ROWS:
                    rows.append({variable: dict(term) for variable, term in row.items()})

    def of(self, answer: str) -> list[dict[str, dict[str, str]]]:
        return self._rows.get(answer, [])


def _followed(ways: _Ways) -> Action:
    walk = ways.walk
    arguments: dict[str, Any] = {"entity": walk.entity, "path": list(walk.path), "return": walk.returning}
    return Action(FOLLOW_PATH, {**arguments, "relations": 0, "limit": MAX_VIAS, "offset": ways.offset})


def _explained(query: Query) -> Action:
    arguments: dict[str, Any] = {"expression": query.text, "explain": True, "limit": 1}
    if query.now is not None:
        arguments["now"] = query.now
    if query.returning:
        arguments["return"] = True
    return Action(EXECUTE_LOGICAL_FORM, arguments)


class _LookUp(NamedTuple):
    name: str
    entity: str
    relation: str | None = None

    def action(self) -> Action:
        asked = {"entity": self.entity}
        return Action(self.name, asked if self.relation is None else {**asked, "relation": self.relation})


def _look_ups(triple: Triple) -> tuple[_LookUp, _LookUp, _LookUp]:
    subject, relation, object_ = triple
    return (
        _LookUp(GET_TAIL_ENTITIES, subject, relation),
        _LookUp(GET_HEAD_ENTITIES, object_, relation),
        _LookUp(GET_TAIL_RELATIONS, subject),
    )


def _in_graph(
    triple: Triple, tails: ActionResult, heads: ActionResult, relations: ActionResult
) -> Triple | None:
    """The triple with ids, from the graph's lists at both ends; None if the graph does not have it.

    A truncated list may lack the other end, but one of the two lists must contain it.
    """
    subject, relation, object_ = triple
    ends = _listed(heads, subject), _listed(relations, relation), _listed(tails, object_)
    if None in ends or ends[0] == ends[2] == "":
        return None
    return ends[0] or subject, ends[1] or relation, ends[2] or object_


def _listed(result: ActionResult, name: str) -> str | None:
    """The id of the item with that id, or of the only item with that label.

    "" if the item may be in the part that was cut off, None if it is not in the list.
    """
    if isinstance(result, Failure):
        return None
    labelled = set[str]()
    for item in result.items:
        if item.id == name:
            return name
        if item.label == name:
            labelled.add(item.id)
    if len(labelled) == 1:
        return labelled.pop()
    return "" if result.truncated else None

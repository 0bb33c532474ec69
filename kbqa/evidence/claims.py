"""Evidence before it counts: every triple and every query is asked of the graph once more.

Building answers notes what they would cite; `settle` asks the graph about all of it at once.
Until then a claim counts as true, so that the first choice of evidence is asked for and not every
other; answers are built again until there is nothing left to ask (`support.confirmed`).
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
)
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.store import MAX_VIAS

_MAX_ROWS = 10  # cited of a query for one answer
# A graph that could not answer has not said that a claim is false.
_UNREACHED = frozenset({ErrorKind.OVERLOADED, ErrorKind.BACKEND_UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class CitedQuery:
    """A query and those of its rows that hold an answer.

    Attributes:
        rows: variable → term, as SPARQL's JSON results write it, with its `id` and `label`.
        boolean: what an ASK answered, which has no rows.
    """

    sparql: str
    rows: list[dict[str, dict[str, str]]]
    boolean: bool | None = None


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways along a path to some of its ends, those from a place on."""

    walk: FollowedPath
    offset: int


class Claims:
    """What may be cited of one graph, for one question.

    Args:
        tools: ask the graph.
        kg: its name.
        graph: id of the per-question subgraph that the runs were restricted to.

    Attributes:
        kg_calls: actions that the graph was asked.
        unreached: why it could not answer one of them; what hangs on that counts as false. None if it
            answered them all.
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

    def close(self) -> None:
        """From now on what is not settled counts as false: there is no time to ask."""
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
        """The triples of a way along a path to an end, by its place among them; None if there is none."""
        asked = _Ways(walk, place - place % MAX_VIAS)
        if asked not in self._ways:
            return [] if self._note(asked) else None
        return self.chain(self._ways[asked].get(answer, ()))

    def rows(self, query: Query, answer: str) -> CitedQuery | None:
        """The query's rows that hold the answer, by id; None if it has none."""
        if query not in self._queries:
            return CitedQuery(sparql=query.text, rows=[]) if self._note(query) else None
        for found in self._queries[query]:
            if rows := found.of(answer):
                return CitedQuery(sparql=found.sparql, rows=rows)
        return None

    def verdict(self, query: Query, boolean: bool) -> CitedQuery | None:
        """The ASK, if that is what it says."""
        if query not in self._queries:
            return CitedQuery(sparql=query.text, rows=[], boolean=boolean) if self._note(query) else None
        for found in self._queries[query]:
            if found.boolean is boolean:
                return CitedQuery(sparql=found.sparql, rows=[], boolean=boolean)
        return None

    def settle(self) -> bool:
        """Ask the graph about what was noted; whether there was anything.

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
        results = self._tools.execute(self._kg, actions, graph=self._graph) if actions else []
        for result in results:
            if isinstance(result, Failure) and result.kind in _UNREACHED:
                self.unreached = result.message
        return results

    def _settle_triples(self, triples: Sequence[Triple]) -> None:
        # Those of many answers share an end, which may be a hub: it is looked at once.
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
    """What a query found: rows by the ids that they hold, or what it says of an ASK."""

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
    return Action(EXECUTE_LOGICAL_FORM, arguments if query.now is None else {**arguments, "now": query.now})


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
    """The triple by its ids, from what the graph lists at both of its ends.

    A list that is too long to be told whole may lack the other end: one of them has to have it.
    """
    subject, relation, object_ = triple
    ends = _listed(heads, subject), _listed(relations, relation), _listed(tails, object_)
    if None in ends or ends[0] == ends[2] == "":
        return None
    return ends[0] or subject, ends[1] or relation, ends[2] or object_


def _listed(result: ActionResult, name: str) -> str | None:
    """The id of what a list holds by id or as the only one with that label.

    "" if it may stand in the part that was left out, None if it is not there.
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

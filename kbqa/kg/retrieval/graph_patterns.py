"""Paths of one or two relations around nodes, shown to an agent before it writes a query.

A path leads out of a node or into it: `node r1 a`, `node r1 a . a r2 b`; `a r1 node`,
`a r1 node . b r2 a`. These cover the six templates of ISP-KGR (appendix D.3), whose third and
sixth are the first and fourth with a literal at the end, and the subgraphs of KnowCoder-A1's
SearchGraphPatterns. They are found by look-ups instead of the templates' queries, which would
not finish at a hub: second relations are looked up for a bounded number of neighbours behind
each first relation (`GraphStore.hub_limits`), and the result says whether it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbqa.errors import QueryTimeoutError
from kbqa.kg.actions import (
    SEARCH_GRAPH_PATTERNS,
    ActionResult,
    ErrorKind,
    Item,
    Success,
)
from kbqa.kg.arguments import TEXT, Argument
from kbqa.kg.handlers import Surroundings, failure, paging
from kbqa.kg.ranking.ranker import Ranker
from kbqa.kg.retrieval.execute_sparql import solve
from kbqa.kg.sparql.select import ParsedSelect
from kbqa.kg.specs import ACTIONS, ActionSpec
from kbqa.kg.store import GraphStore

# Number of results in both papers.
TOP = 10
# Maximum values of a variable around which patterns are searched.
MAX_NODES = 100
_MAX_RELATIONS = 1000
# Share of an action's time for searching; the rest is for ranking and labels.
_SHARE_OF_DEADLINE = 0.7

_PATTERN_VARIABLES = ("x", "e")


@dataclass(frozen=True, slots=True)
class PatternPath:
    """A path of consecutive relations.

    Attributes:
        relations: one or two, starting at the node.
        outgoing: whether each is followed from head to tail.
    """

    relations: tuple[Item, ...]
    outgoing: bool


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths found around nodes.

    Attributes:
        found: the paths; paths of one relation come first.
        complete: whether all paths were found.
        in_time: False if the time limit ended the search.
    """

    found: tuple[PatternPath, ...]
    complete: bool
    in_time: bool


def paths_around(
    store: GraphStore,
    nodes: Sequence[str],
    ranker: Ranker,
    text: str,
    *,
    deadline_s: float,
    instruction: str = "",
) -> Paths:
    """The paths that begin or end at one of `nodes`.

    Args:
        nodes: ids.
        ranker, text, instruction: if there are more first relations than can be followed, the
            ones most similar to the text are selected.
        deadline_s: time limit of the action; the search uses a share of it.
    """
    until = time.monotonic() + deadline_s * _SHARE_OF_DEADLINE
    short: list[PatternPath] = []
    long: list[PatternPath] = []
    complete = in_time = True
    most, max_neighbours = store.hub_limits
    for outgoing in (True, False):
        relations_of = store.tail_relations if outgoing else store.head_relations
        neighbours_of = store.tail_entities if outgoing else store.head_entities
        page = relations_of(nodes, limit=_MAX_RELATIONS)
        short += [PatternPath((relation,), outgoing) for relation in page.items]
        followed = page.items
        if len(followed) > most:
            best = ranker.rank(text, followed, top_k=most, instruction=instruction)
            followed = tuple(Item(item.id, item.label) for item in best)
        complete = complete and page.total == len(followed)
        for first in followed:
            try:
                if time.monotonic() >= until:
                    raise QueryTimeoutError("no time is left to follow relations")
                neighbours = neighbours_of(nodes, [first.id], limit=max_neighbours)
                seconds = relations_of([item.id for item in neighbours.items], limit=_MAX_RELATIONS)
            except QueryTimeoutError:
                in_time = False
                break
            complete = complete and neighbours.total <= max_neighbours and seconds.total <= _MAX_RELATIONS
            long += [PatternPath((first, second), outgoing) for second in seconds.items]
    return Paths((*short, *long), complete and in_time, in_time)


def ranked(
    ranker: Ranker, text: str, paths: Sequence[PatternPath], *, instruction: str = ""
) -> list[tuple[PatternPath, float | None]]:
    """Paths with their scores, best first; in the given order and without scores if `text` is empty."""
    if not text or not paths:
        return [(path, None) for path in paths]
    scores = ranker.score_paths(text, [path.relations for path in paths], instruction=instruction)
    order = sorted(
        range(len(paths)), key=lambda i: (-scores[i], len(paths[i].relations), not paths[i].outgoing, i)
    )
    return [(paths[i], scores[i]) for i in order]


def values_of(surroundings: Surroundings, query: ParsedSelect, variable: str) -> list[str]:
    """Ids of some values of a variable, at most `MAX_NODES`.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.query`.
    """
    store = surroundings.store
    found = solve(store, query.values_of(variable, MAX_NODES), deadline_s=surroundings.deadline_s)
    terms = [binding[variable] for binding in found.bindings if variable in binding]
    return list(dict.fromkeys(map(store.id_of, terms)))


def _search_graph_patterns(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    query = ParsedSelect.parse(arguments["sparql"])
    variable = next((v for v in _PATTERN_VARIABLES if v in (query.projected or ())), None)
    if variable is None:
        return failure(
            ErrorKind.QUERY_REFUSED,
            "the query must begin with SELECT DISTINCT ?x WHERE, and ?e will do, too: "
            "patterns are searched around that variable",
            {"reason": "no_pattern_variable"},
        )
    if variable not in query.matched:
        message = f"?{variable} does not occur in WHERE {{ … }}"
        return failure(ErrorKind.QUERY_REFUSED, message, {"reason": "unused_variable"})
    nodes = values_of(surroundings, query, variable)
    if not nodes:
        message = f"the query finds nothing that ?{variable} could be: loosen it"
        return failure(ErrorKind.NO_ENTITIES_FOUND, message, {"reason": "no_values"})
    text = arguments.get("semantic", "")
    ranker, store = surroundings.schema.relations, surroundings.store
    paths = paths_around(store, nodes, ranker, text, deadline_s=surroundings.deadline_s)
    scored = ranked(ranker, text, paths.found)
    limit, offset = paging(surroundings, {"limit": TOP, **arguments})
    items = tuple(_pattern(store, nodes, path, score) for path, score in scored[offset : offset + limit])
    return Success(
        items,
        len(scored),
        truncated=not paths.complete or offset + len(items) < len(scored),
        details={"variable": f"?{variable}", **timing(paths)},
    )


def timing(paths: Paths) -> dict[str, Any]:
    """`timed_out` if time ran out: a later search may find more, so the answer must not be cached."""
    return {} if paths.in_time else {"timed_out": True}


def _pattern(
    store: GraphStore, nodes: Sequence[str], path: PatternPath, score: float | None
) -> dict[str, Any]:
    neighbours_of = store.tail_entities if path.outgoing else store.head_entities
    ends, avoided = list(nodes), set(nodes)
    found: tuple[Item, ...] = ()
    for relation in path.relations:
        found = neighbours_of(ends, [relation.id], limit=store.hub_limits.neighbours).items
        ends = [item.id for item in found]
    # A start node is a poor example, since it shows only the way back.
    example = next((item for item in found if item.id not in avoided), found[0] if found else None)
    relations = path.relations if path.outgoing else path.relations[::-1]
    return {
        "direction": "out" if path.outgoing else "in",
        "relations": [{"id": relation.id, "label": relation.label} for relation in relations],
        "example": {"id": example.id, "label": example.label} if example else None,
        "score": score,
    }


ACTIONS.register(
    ActionSpec(
        SEARCH_GRAPH_PATTERNS,
        "Given SPARQL that finds entities (SELECT ?x WHERE {...}), list up to ten one- and two-hop "
        "patterns of facts around them, those closest to the phrase `semantic` first.",
        _search_graph_patterns,
        {"sparql": Argument(TEXT, "SELECT ?x WHERE { ... }, or ?e, around which is searched")},
        {"semantic": Argument(TEXT, "a phrase that the patterns are ranked by")},
        item=None,
        answers=f"Items, {TOP} unless `limit` says otherwise: `direction` (`out`: the variable is the "
        "head), `relations` in the order from head to tail, `example`, a node at the other end, and "
        "`score`, null without `semantic`. Details: `variable`; `timed_out` if there may be more at "
        "another time. Those of a failure: `reason`, one of `no_pattern_variable`, `unused_variable` and "
        "`no_values`.",
        errors=(ErrorKind.QUERY_SYNTAX, ErrorKind.QUERY_REFUSED, ErrorKind.NO_ENTITIES_FOUND),
    )
)

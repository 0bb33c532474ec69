"""The number of edges between two sets of entities, for ISP-KGR's progress reward.

`entity_distance` is a bidirectional breadth-first search that ignores edge directions;
literals are nodes (section 4.3.2, appendix F.9). It stops at the first path, which is a
shortest one, at `max_distance`, and at a bound on nodes, because half of the graph may lie
behind a hub.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbqa.errors import QueryTimeoutError
from kbqa.kg.actions import ENTITY_DISTANCE, ActionResult, ErrorKind, Success
from kbqa.kg.arguments import TEXTS, Argument, whole_number
from kbqa.kg.handlers import Surroundings, failure, quote
from kbqa.kg.specs import ACTIONS, ActionSpec
from kbqa.kg.store import MAX_ADJACENT, GraphStore

# The bound of ISP-KGR's code.
DEFAULT_MAX_DISTANCE = 3
MAX_DISTANCE = 10
# Not above what an endpoint lists of a hub's neighbours, so that a search that lacks some is given up.
MAX_NODES = MAX_ADJACENT
# Nodes whose neighbours are requested at once; the bounds are checked between requests.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Distance:
    """The result of a search.

    Attributes:
        edges: number of edges on a shortest path; None if there is no path within the bounds.
        at_least: lower bound of the distance; None if there is no path of any length.
        complete: False if the search ended at the bound on nodes.
    """

    edges: int | None
    at_least: int | None
    complete: bool = True


def distance(
    store: GraphStore,
    a: Sequence[str],
    b: Sequence[str],
    *,
    max_distance: int = DEFAULT_MAX_DISTANCE,
    max_nodes: int = MAX_NODES,
    deadline_s: float = 3.0,
) -> Distance:
    """The smallest number of edges between a node of `a` and a node of `b`, 0 if they share a node.

    Args:
        a, b: ids; an id that is not in the graph has no edges.
        max_distance: sets that are farther apart count as unconnected.
        max_nodes: number of nodes after which the search is given up.
        deadline_s: time limit in seconds.

    Raises:
        QueryTimeoutError: the search took longer.
    """
    seen, frontier = set(a), set(a)
    others, other_frontier = set(b), set(b)
    deadline = time.monotonic() + deadline_s
    if not seen.isdisjoint(others):
        return Distance(0, 0)
    for edges in range(1, max_distance + 1):
        # The smaller side is extended by one edge; each side is always complete to its depth.
        if len(other_frontier) < len(frontier):
            seen, frontier, others, other_frontier = others, other_frontier, seen, frontier
        reached: set[str] = set()
        # Sorted, so that a search that is given up has always seen the same nodes.
        nodes = sorted(frontier)
        for start in range(0, len(nodes), _AT_ONCE):
            found = store.adjacent(nodes[start : start + _AT_ONCE])
            if not found.isdisjoint(other_frontier):
                return Distance(edges, edges)
            reached |= found - seen
            if len(seen) + len(reached) + len(others) > max_nodes:
                # Not all of them may have been listed: seen from the other side, a hub is a single node.
                opposite = store.adjacent(sorted(other_frontier)[:_AT_ONCE])
                if not opposite.isdisjoint(frontier):
                    return Distance(edges, edges)
                return Distance(None, edges, complete=False)
            if time.monotonic() > deadline:
                raise QueryTimeoutError(
                    f"the distance was not found within {deadline_s:g} s: lower max_distance"
                )
        seen |= reached
        frontier = reached
        if not frontier:
            return Distance(None, None)
    return Distance(None, max_distance + 1)


def _entity_distance(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    # Names that are not in the graph are skipped, since a query may return computed values.
    unknown: list[str] = []
    sets = []
    for argument in ("set_a", "set_b"):
        names = arguments[argument]
        ids = _known(surroundings.store, names, unknown)
        if not ids:
            return failure(ErrorKind.ENTITY_NOT_IN_KG, f"Entity {quote(names[0])} not found in KG")
        sets.append(ids)
    max_distance = arguments.get("max_distance", DEFAULT_MAX_DISTANCE)
    found = distance(surroundings.store, *sets, max_distance=max_distance, deadline_s=surroundings.deadline_s)
    details = {"distance": found.edges, "at_least": found.at_least, "unknown": unknown}
    return Success((), 0, truncated=not found.complete, details=details)


def _known(store: GraphStore, names: Sequence[str], unknown: list[str]) -> list[str]:
    """The ids that names stand for; names without ids are added to `unknown`."""
    items = store.items(names)
    ids: list[str] = []
    for name in names:
        found = (items[name].id,) if name in items else store.resolve_entity(name)
        ids.extend(found)
        if not found:
            unknown.append(name)
    return ids


_SET = Argument(TEXTS, "ids or exact labels of entities")

ACTIONS.register(
    ActionSpec(
        ENTITY_DISTANCE,
        "Count the facts on the shortest path between two sets of entities, in whichever direction they run.",
        _entity_distance,
        {"set_a": _SET, "set_b": _SET},
        {
            "max_distance": Argument(
                whole_number(0, MAX_DISTANCE),
                f"distance beyond which entities count as unconnected; {DEFAULT_MAX_DISTANCE} unless given",
            )
        },
        item=None,
        answers="No items. Details: `distance`, null when there is none within the bound; `at_least`, what "
        "it cannot be less than; `unknown`, the names that stand for nothing in the graph, which are "
        "passed over: a set of nothing else is a failure. `truncated`: the search was given up.",
        errors=(ErrorKind.ENTITY_NOT_IN_KG,),
    )
)

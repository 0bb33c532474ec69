"""What lies behind a join: the relations of the nodes that it leads to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from kbqa.kg.actions import Item
from kbqa.kg.embedded.names import LABEL_RELATIONS
from kbqa.kg.ranking.ranker import Ranker
from kbqa.kg.retrieval.node_relations import INSTRUCTION
from kbqa.kg.store import GraphStore, PathStep, Survey, Walk

Hop = tuple[Item, bool]
"""A relation, and whether it is followed from tail to head."""

MAX_BEHIND = 600  # relations listed behind all joins together
MAX_SHARING = 100
"""Entities to which one may go by a relation and straight back, as to the other films of a director."""
MAX_FOLLOWED = 20
"""Nodes from which a join is followed."""
NAMING = frozenset(f"<{iri}>" for iri in LABEL_RELATIONS)
"""Relations that give names, as SPARQL terms."""


def behind(store: GraphStore, nodes: Sequence[str], path: Sequence[Hop]) -> list[Hop]:
    """The relations of the nodes to which a path leads from some nodes, without those of names.

    The relation that leads straight back is left out where it leads to more than `MAX_SHARING` entities.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.follow`.
    """
    there = steps(path)
    relation, inverse = path[-1]
    found = hops_of(store.follow(nodes, there, limit=0))
    back = PathStep((relation.id,), not inverse)
    if store.follow(nodes, [*there, back], limit=0).ends.total > MAX_SHARING:
        found = [hop for hop in found if hop != (relation, not inverse)]
    return [hop for hop in found if store.relation_term(hop[0].id) not in NAMING]


def steps(path: Sequence[Hop]) -> list[PathStep]:
    """A path as `GraphStore.follow` takes it."""
    return [PathStep((relation.id,), inverse) for relation, inverse in path]


def hops_of(found: Walk | Survey) -> list[Hop]:
    """The relations of the nodes at the end of a walk, or of those that were surveyed."""
    return [(item, inverse) for items, inverse in ((found.into, True), (found.out, False)) for item in items]


def fitting(listed: Sequence[Sequence[Hop]], question: str, ranker: Ranker) -> list[list[Hop]]:
    """What lies behind each of several joins; of more than `MAX_BEHIND` hops, the best for a question."""
    times = Counter(hop for hops in listed for hop in hops)
    if times.total() <= MAX_BEHIND:
        return [list(hops) for hops in listed]
    relations = {item.id: item for item, _ in times}
    ranked = ranker.rank(question, relations.values(), instruction=INSTRUCTION)
    places = {item.id: place for place, item in enumerate(ranked)}
    best = sorted(times, key=lambda hop: (places[hop[0].id], hop[1]))
    totals = accumulate(times[hop] for hop in best)
    kept = {hop for hop, total in zip(best, totals, strict=True) if total <= MAX_BEHIND}
    return [[hop for hop in hops if hop in kept] for hops in listed]

"""What is missing at some nodes: the relations that others like them have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbqa.kg.actions import Item
from kbqa.kg.retrieval.look_ahead import NAMING, Hop, hops_of
from kbqa.kg.store import GraphStore, PathStep, Survey

_NODES = 20  # of which others like them are looked for
_OTHERS = 30  # by each relation


class Missing(NamedTuple):
    """A relation that some nodes do not have.

    Attributes:
        hop: the relation, by direction.
        others: ids of nodes like them, some of which have it.
    """

    hop: Hop
    others: Sequence[str]


def missing_beside(store: GraphStore, nodes: Sequence[str], survey: Survey) -> Iterator[Missing]:
    """The relations that others have with which nodes share a neighbour, and none of the nodes has.

    Of two films by one director, one may have a composer and the other none. A relation that the nodes have
    in the other direction is left out: it is a relation of their neighbours.

    Args:
        survey: what the nodes have.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.follow`.
    """
    known = hops_of(survey)
    others: dict[str, None] = {}
    for relation, inverse in known:
        there_and_back = [PathStep((relation.id,), inverse), PathStep((relation.id,), not inverse)]
        sharing = store.follow(nodes[:_NODES], there_and_back, limit=_OTHERS).ends.items
        others |= dict.fromkeys(item.id for item in sharing)
    names = {relation.id for relation, _ in known}
    for relation, inverse in hops_of(store.follow(list(others), [], limit=0)):
        if relation.id not in names and store.relation_term(relation.id) not in NAMING:
            yield Missing((relation, inverse), tuple(others))


def missing_elsewhere(store: GraphStore, asked: Sequence[Item], survey: Survey) -> Iterator[Missing]:
    """The relations that a question asks for, if others of the same kind have them and the nodes have none.

    Somebody who only directs shares no film with those who only write. Others are of the same kind if they
    have at least half of the relations of the nodes, classes aside. If the nodes have one of those that the
    question asks for, it may ask for the rest further on, such as for the writers of what somebody directed.

    Args:
        asked: relations of the graph.
        survey: what the nodes have.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.follow`.
    """
    types = set(store.type_relations)
    known = {hop for hop in hops_of(survey) if hop[0].id not in types}
    names = {relation.id for relation, _ in known}
    if any(relation.id in names for relation in asked):
        return
    for relation in dict.fromkeys(asked):
        for inverse in (True, False):
            others = store.holders(relation.id, inverse=inverse, limit=_OTHERS)
            shared = known.intersection(hops_of(store.follow(others, [], limit=0)))
            if shared and 2 * len(shared) >= len(known):
                yield Missing((relation, inverse), others)

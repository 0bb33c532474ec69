"""What is missing at some nodes: the relations that others like them have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbqa.kg.retrieval.look_ahead import NAMING, Hop
from kbqa.kg.store import GraphStore, PathStep, Survey, Walk

_NODES = 20  # of which others like them are looked for
_OTHERS = 30  # by each relation


class Missing(NamedTuple):
    """Relations that some nodes do not have.

    Attributes:
        hops: the relations, by direction.
        others: ids of nodes like them, each with some of these relations.
    """

    hops: tuple[Hop, ...]
    others: tuple[str, ...]


def missing(store: GraphStore, nodes: Sequence[str], survey: Survey) -> Missing:
    """The relations that others have with which nodes share a neighbour, and none of the nodes has.

    Of two films by one director, one may have a composer and the other none. A relation that the nodes have
    in the other direction is left out: it is a relation of their neighbours.

    Args:
        survey: what the nodes have.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.follow`.
    """
    known = list(_hops(survey))
    others: dict[str, None] = {}
    for relation, inverse in known:
        there_and_back = [PathStep((relation.id,), inverse), PathStep((relation.id,), not inverse)]
        sharing = store.follow(nodes[:_NODES], there_and_back, limit=_OTHERS).ends.items
        others |= dict.fromkeys(item.id for item in sharing)
    names = {relation.id for relation, _ in known}
    hops = [
        (relation, inverse)
        for relation, inverse in _hops(store.follow(list(others), [], limit=0))
        if relation.id not in names and store.relation_term(relation.id) not in NAMING
    ]
    return Missing(tuple(hops), tuple(others))


def _hops(has: Survey | Walk) -> Iterator[Hop]:
    yield from ((relation, True) for relation in has.into)
    yield from ((relation, False) for relation in has.out)

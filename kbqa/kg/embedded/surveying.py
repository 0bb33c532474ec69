"""Surveys a set of nodes: the relations, values, classes and paths to other entities that it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kbqa.kg.actions import Item
from kbqa.kg.embedded.indexing import TYPE_RELATIONS
from kbqa.kg.embedded.members import FormIndex
from kbqa.kg.embedded.walks import MAX_EDGES, Numbers, relations_among, spread
from kbqa.kg.store import MAX_SURROUNDED, Attribute, Bond, Survey
from kbqa.logical_forms.algebra import Relation
from kbqa.logical_forms.compiler import INTERVALS

if TYPE_CHECKING:
    from kbqa.kg.embedded.adjacency import Adjacency

_NEAR = 512  # nodes around a set through which a bond to an entity may lead
_SAMPLED = 64  # nodes by which a relation is judged to have values


class Surveyor:
    """Surveys sets of nodes of one graph."""

    def __init__(self, index: Adjacency, forms: FormIndex) -> None:
        self._index, self._forms = index, forms
        self._types = set(index.links_named(*TYPE_RELATIONS))

    def survey(self, nodes: Numbers, topics: Sequence[str]) -> Survey:
        """Survey the first `MAX_SURROUNDED` of some nodes.

        Args:
            topics: ids of the entities to which bonds are wanted.
        """
        nodes = nodes[:MAX_SURROUNDED]
        out, into = (relations_among(self._index.side(inverse=inverse), nodes) for inverse in (False, True))
        relation = self._index.relation_at
        attributes = list(self._attributes(nodes, out))
        return Survey(
            out=tuple(map(relation, out)),
            into=tuple(map(relation, into)),
            classes=self._classes(nodes),
            attributes=tuple(attributes),
            intervals=tuple(relation(link) for link in self._intervals(out)),
            bonds={topic: tuple(self._bonds(nodes, topic)) for topic in topics},
        )

    def _classes(self, nodes: Numbers) -> tuple[tuple[Item, int], ...]:
        counts: Counter[int] = Counter()
        for node in nodes.tolist():
            side = self._index.side(inverse=False)
            counts.update({kind for link in self._types for kind in side.neighbours(node, link)})
        return tuple((self._index.item_at(kind), count) for kind, count in counts.most_common())

    def _attributes(self, nodes: Numbers, out: Sequence[int]) -> Iterator[Attribute]:
        """The relations to numbers and dates, directly or through nodes without a name."""
        for link in out:
            path = (self._index.relation_at(link),)
            if (attribute := self._attribute(nodes, path)) is not None:
                yield attribute
                continue
            around = spread(self._index.side(inverse=False), nodes[:_SAMPLED], [link], _SAMPLED).nodes
            if link not in self._types and len(around) and all(map(self._is_nameless, around.tolist())):
                for further in relations_among(self._index.side(inverse=False), around):
                    longer = (*path, self._index.relation_at(further))
                    if (attribute := self._attribute(nodes, longer)) is not None:
                        yield attribute

    def _attribute(self, nodes: Numbers, path: tuple[Item, ...]) -> Attribute | None:
        steps = tuple(Relation(item.id) for item in path)
        # Most relations lead to entities, which a few nodes show.
        if not self._forms.values(nodes[:_SAMPLED], steps)[1]:
            return None
        _, values = self._forms.values(nodes, steps)
        datatype = Counter(value.datatype for value in values).most_common(1)[0][0]
        is_date = next(value.is_date for value in values if value.datatype == datatype)
        keys = {value.key for value in values if value.is_date is is_date}
        return Attribute(path, datatype, is_date, len(keys))

    def _is_nameless(self, node: int) -> bool:
        id_ = self._index.id_at(node)
        return self._index.label_at(node) == id_ and not id_.startswith('"')

    def _intervals(self, out: Sequence[int]) -> Iterator[int]:
        """The relations that begin an interval."""
        begins = tuple(f".{begin}" for begin, _ in INTERVALS)
        return (link for link in out if self._index.relation_at(link).id.endswith(begins))

    def _bonds(self, nodes: Numbers, topic: str) -> Iterator[Bond]:
        """Paths of one or two relations that lead from some of the nodes to an entity."""
        there = self._index.numbers(self._index.resolve_entity(topic))
        near = [self._around(there, inverse=inverse) for inverse in (True, False)]
        found: dict[tuple[tuple[int, bool], ...], set[int]] = {}
        between: dict[int, set[tuple[int, bool]]] = {}
        for inverse, (_, links, others) in zip((False, True), near, strict=True):
            # A triple (other, link, topic) is followed forwards from the other node.
            kept = np.isin(others, nodes)
            for link, other in zip(links[kept].tolist(), others[kept].tolist(), strict=True):
                found.setdefault(((link, inverse),), set()).add(other)
            for link, other in zip(links[~kept].tolist(), others[~kept].tolist(), strict=True):
                if len(between) < _NEAR or other in between:
                    between.setdefault(other, set()).add((link, inverse))
        middles = np.array(sorted(between), np.int64)
        for inverse in (False, True):
            sources, links, others = self._around(nodes, inverse=inverse)
            kept = np.isin(others, middles)
            columns = (column[kept].tolist() for column in (sources, links, others))
            for source, link, middle in zip(*columns, strict=True):
                if link not in self._types:
                    for last in between[middle]:
                        found.setdefault(((link, inverse), last), set()).add(source)
        for steps, linked in found.items():
            path = tuple((self._index.relation_at(link), inverse) for link, inverse in steps)
            yield Bond(path, len(linked))

    def _around(self, nodes: Numbers, *, inverse: bool) -> tuple[Numbers, Numbers, Numbers]:
        """(node, relation, neighbour) columns of triples with one of the nodes at that end; bounded."""
        side = self._index.side(inverse=inverse)
        listed = side.listed(nodes)
        fitting = nodes[: max(1, int(np.searchsorted(np.cumsum(listed.end - listed.first), MAX_EDGES)))]
        return side.columns(fitting)

"""Surveys a set of nodes: the relations, values, classes and paths to other entities that it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kbqa.kg.actions import Item
from kbqa.kg.embedded.members import FormIndex, Mask
from kbqa.kg.embedded.names import LABEL_RELATIONS
from kbqa.kg.embedded.walks import Numbers, relations_among, spread
from kbqa.kg.store import MAX_SURROUNDED, Attribute, Bond, Survey
from kbqa.kg.values import most_frequent
from kbqa.logical_forms.algebra import Expression, Relation, entities

if TYPE_CHECKING:
    from kbqa.kg.embedded.adjacency import Adjacency

_SAMPLED = 64  # nodes by which a relation is judged to have values
_MAX_AROUND = 1 << 16  # triples around a set, on each side, along which bonds of two relations are found


class Surveyor:
    """Surveys sets of nodes of one graph."""

    def __init__(self, index: Adjacency, forms: FormIndex) -> None:
        self._index, self._forms = index, forms
        self._types = set(index.type_links)
        self._names = set(index.links_named(*LABEL_RELATIONS))

    def survey(self, form: Expression, topics: Sequence[str], *, returning: bool) -> Survey:
        """Survey the members of a form, as `GraphStore.survey` does."""
        named = () if returning else entities(form)
        bonds = {
            topic: tuple(self._bonds(form, topic, () if returning else (*named, topic))) for topic in topics
        }
        return self._survey(self._forms.members(form, named).nodes, bonds)

    def survey_nodes(self, nodes: Numbers) -> Survey:
        """Survey entities that a longer form will name."""
        return self._survey(nodes, {})

    def _survey(self, nodes: Numbers, bonds: dict[str, tuple[Bond, ...]]) -> Survey:
        nodes = nodes[:MAX_SURROUNDED]
        out, into = (relations_among(self._index.side(inverse=inverse), nodes) for inverse in (False, True))
        return Survey(
            out=tuple(self._index.relation_at(link) for link in out if link not in self._names),
            into=tuple(self._index.relation_at(link) for link in into if link not in self._names),
            classes=self._classes(nodes),
            attributes=tuple(self._attributes(nodes)),
            bonds=bonds,
        )

    def _classes(self, nodes: Numbers) -> tuple[tuple[Item, int], ...]:
        counts: Counter[int] = Counter()
        side = self._index.side(inverse=False)
        for node in nodes.tolist():
            counts.update({kind for link in self._types for kind in side.neighbours(node, link)})
        ordered = sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))
        return tuple((self._index.item_at(kind), count) for kind, count in ordered)

    def _attributes(self, nodes: Numbers) -> Iterator[Attribute]:
        """The relations to numbers and dates, directly or through nodes that are parts of others."""
        side = self._index.side(inverse=False)
        for link in relations_among(side, nodes):
            path = (self._index.relation_at(link),)
            first, end = side.runs(nodes, link)
            linked = nodes[first < end]
            if (attribute := self._attribute(linked, path)) is not None:
                yield attribute
                continue
            around = spread(side, linked[:_SAMPLED], [link], _SAMPLED).nodes
            if link not in self._types and self._are_parts(around):
                for further in relations_among(side, around):
                    longer = (*path, self._index.relation_at(further))
                    if (attribute := self._attribute(linked, longer)) is not None:
                        yield attribute

    def _attribute(self, nodes: Numbers, path: tuple[Item, ...]) -> Attribute | None:
        steps = tuple(Relation(item.id) for item in path)
        # Most relations lead to entities, which a few nodes show.
        if not self._forms.values(nodes[:_SAMPLED], steps)[1]:
            return None
        places, values = self._forms.values(nodes, steps)
        datatype = most_frequent((value.datatype, 1) for value in values)
        one = next(value for value in values if value.datatype == datatype)
        kept = [value for value in values if value.comparable(one)]
        members = {p for p, value in zip(places.tolist(), values, strict=True) if value.comparable(one)}
        least, greatest = (choose(kept, key=lambda value: value.key) for choose in (min, max))
        return Attribute(path, datatype, least, greatest, len(members))

    def _are_parts(self, nodes: Numbers) -> bool:
        """Whether each node belongs to another: it has no name, or one triple alone leads to it.

        A price of "12 EUR" with an amount and a currency is a part of the product.
        """
        shared = nodes[self._index.side(inverse=True).degrees(nodes) != 1]
        return all(map(self._is_nameless, shared.tolist())) and not any(map(self._is_literal, nodes.tolist()))

    def _is_nameless(self, node: int) -> bool:
        return self._index.label_at(node) == self._index.id_at(node)

    def _is_literal(self, node: int) -> bool:
        return self._index.id_at(node).startswith('"')

    def _bonds(self, form: Expression, topic: str, apart: tuple[str, ...]) -> Iterator[Bond]:
        """Paths of one or two relations from the members to an entity, which no join leads to on the way."""
        there, left_out = self._forms.nodes([topic]), self._forms.nodes(apart)
        nodes = self._forms.members(form, apart).nodes[:MAX_SURROUNDED]
        nodes = nodes[~np.isin(nodes, left_out)]
        found: dict[tuple[tuple[int, bool], ...], int] = {
            ((link, inverse),): int(linked.sum())
            for link, inverse, linked in self._links_to(there, nodes)
            if linked.any()
        }
        for first_inverse in (False, True):
            sources, links, middles = self._around(nodes, left_out, inverse=first_inverse)
            unique, places = np.unique(middles, return_inverse=True)
            for last, inverse, linked in self._links_to(there, unique):
                leading = linked[places]
                for first in np.unique(links[leading]).tolist():
                    members = np.unique(sources[leading & (links == first)])
                    found[(first, first_inverse), (last, inverse)] = len(members)
        for steps in sorted(found, key=lambda steps: (len(steps), steps)):
            path = tuple((self._index.relation_at(link), inverse) for link, inverse in steps)
            yield Bond(path, found[steps])

    def _links_to(self, there: Numbers, nodes: Numbers) -> Iterator[tuple[int, bool, Mask]]:
        """Each relation of some entities, whether it is followed from tail to head, and a mask of the nodes
        from which it leads there."""
        if not len(there) or not len(nodes):
            return
        for inverse in (False, True):
            # The triples at the entities are those of the path's other end.
            for link in relations_among(self._index.side(inverse=not inverse), there):
                if link not in self._names:
                    yield link, inverse, self._forms.are_linked(nodes, there, not inverse, [link])

    def _around(self, nodes: Numbers, apart: Numbers, *, inverse: bool) -> tuple[Numbers, Numbers, Numbers]:
        """(node, relation, neighbour) columns of triples with one of the nodes at that end.

        Nodes with few triples come first: a hub must neither cost more nor leave the others out.
        """
        side = self._index.side(inverse=inverse)
        degrees = side.degrees(nodes)
        order = np.argsort(degrees, kind="stable")
        fitting = np.sort(nodes[order[np.cumsum(degrees[order]) <= _MAX_AROUND]])
        columns = side.columns(fitting)
        passed_over = [*self._types, *self._names]
        kept = ~np.isin(columns[1], passed_over) & ~np.isin(columns[2], apart)
        sources, links, neighbours = (column[kept] for column in columns)
        return sources, links, neighbours

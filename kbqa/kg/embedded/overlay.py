"""The index of a graph that changed: that of its base, which never changes, and what lies over it.

Nodes are numbered in the order of their labels, and results are runs of ascending numbers. A node that is
added, or that a change names otherwise, gets a number between two of the base, with a fraction: 41.5 lies
between the nodes 41 and 42. Everything that compares numbers therefore works as in the base, and runs of
nodes that did not change are those of the base, without a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kbqa.kg.actions import Item
from kbqa.kg.embedded.names import (
    ALIAS,
    LABEL_RELATIONS,
    SKOS_LABELS,
    SUBPROPERTY,
    NamingRules,
    literal_value,
    shown_first,
    texts_of,
)
from kbqa.kg.embedded.overlay_sides import ChangedSide, Edge, Number
from kbqa.kg.embedded.overlay_terms import ChangedTerms, number_in, placed_between

if TYPE_CHECKING:
    from kbqa.kg.embedded.adjacency import Adjacency

Triple = tuple[str, str, str]  # ids of head, relation, tail

# Facts of an entity whose label may change without writing the graph anew.
MAX_MOVED = 10_000


class Difference(NamedTuple):
    """What a graph has more, and less, than its base.

    Attributes:
        inserted: triples that the base has not.
        deleted: triples of the base.
    """

    inserted: frozenset[Triple] = frozenset()
    deleted: frozenset[Triple] = frozenset()

    def __len__(self) -> int:
        return len(self.inserted) + len(self.deleted)


class NotAnOverlayError(Exception):
    """A change of which an overlay cannot show everything; the graph has to be written anew."""


@dataclass(frozen=True)
class Overlay:
    """The parts of a changed index.

    Attributes:
        added, removed: the triples by number, also those of nodes that were moved.
        touched: ids of nodes that are new or gone, or have other names.
    """

    nodes: ChangedTerms
    relations: ChangedTerms
    out: ChangedSide
    into: ChangedSide
    touched: frozenset[str]
    relation_items: Mapping[Number, Item]
    types: list[Number]
    triples: int
    entities: int


def overlay(base: Adjacency, rules: NamingRules, named: bool, difference: Difference) -> Overlay:
    """The index of a base with a difference.

    Args:
        named: whether ids are names from a delimited file.

    Raises:
        NotAnOverlayError: the graph has to be written anew.
    """
    return _Builder(base, rules, named, difference).build()


class _NodeChanges(NamedTuple):
    """What is different about nodes than in the base.

    Attributes:
        new: ids that the base has not.
        gone: numbers of the nodes that are left without a fact.
        names: id → label and names other than the id, of nodes that may have other ones.
        moved: id → number in the base of nodes with another label.
    """

    new: Sequence[str]
    gone: set[int]
    names: Mapping[str, tuple[str, list[str]]]
    moved: Mapping[str, int]


class _Builder:
    def __init__(self, base: Adjacency, rules: NamingRules, named: bool, difference: Difference) -> None:
        self._base, self._named = base, named
        self._terms, self._links = base.terms
        self._out, self._in = base.sides
        self._inserted, self._deleted = difference
        self._rules = rules if named else self._changed_rules(rules)
        self._old_rules = rules

    def build(self) -> Overlay:
        changes = self._node_changes()
        nodes = self._nodes(changes)
        relations = self._relations(changes.names, changes.gone)
        kept: dict[Number, Item] = {
            link: item for link, item in self._base.links() if relations.number(item.id) == link
        }
        kept.update(relations.placed)
        added, removed = self._edges(nodes, relations, changes.moved)
        origins = {number_in(nodes, id_): number for id_, number in changes.moved.items()}
        out, into = (
            ChangedSide(side, len(self._terms), drop, add, origins)
            for side, drop, add in (
                (self._out, removed, added),
                (self._in, map(_turned, removed), map(_turned, added)),
            )
        )
        gone = [self._terms.id_of(number) for number in changes.gone]
        return Overlay(
            nodes,
            relations,
            out,
            into,
            frozenset({*changes.names, *changes.new, *gone}),
            dict(sorted(kept.items())),
            self._types(kept, into, added, removed),
            self._base.triples + len(self._inserted) - len(self._deleted),
            self._base.entities + self._num_entities(changes.new) - self._num_entities(gone),
        )

    def _node_changes(self) -> _NodeChanges:
        """Which nodes are new or gone, or have other names.

        Raises:
            NotAnOverlayError: a node with many facts has another label.
        """
        degrees: Counter[str] = Counter()
        for sign, triples in ((1, self._inserted), (-1, self._deleted)):
            for head, _, tail in triples:
                degrees[head] += sign
                degrees[tail] += sign
        new: list[str] = []
        gone: set[int] = set()
        names: dict[str, tuple[str, list[str]]] = {}
        for id_, change in degrees.items():
            number = self._terms.number(id_)
            if number is None:
                if self._is_literal(id_):
                    names[id_] = shown_first(id_, [(0, literal_value(id_))])
                new.append(id_)
            elif change < 0 and not self._degree(number) + change:
                gone.add(number)
        moved: dict[str, int] = {}
        for id_ in self._renamed(gone):
            label, _ = names[id_] = self._named_by_facts(id_)
            number = self._terms.number(id_)
            if number is not None and label != self._terms.item(number).label:
                if self._degree(number) > MAX_MOVED:
                    raise NotAnOverlayError(f"{id_} has another label and many facts")
                moved[id_] = number
        return _NodeChanges(new, gone, names, moved)

    def _nodes(self, changes: _NodeChanges) -> ChangedTerms:
        labels = {id_: label for id_, (label, _) in changes.names.items()}
        items = [Item(id_, labels.get(id_, id_)) for id_ in (*changes.new, *changes.moved)]
        placed = placed_between(self._terms, items)
        numbers = {item.id: number for number, item in placed.items()}
        own_names: dict[Number, list[str]] = {
            numbers[id_] if id_ in numbers else number_in(self._terms, id_): others
            for id_, (_, others) in changes.names.items()
        }
        return ChangedTerms(self._terms, changes.gone | set(changes.moved.values()), placed, own_names)

    def _changed_rules(self, rules: NamingRules) -> NamingRules:
        """The rules with the counts of the changed graph.

        Raises:
            NotAnOverlayError: other relations give names than in the base.
        """
        texts = dict(rules.texts)
        known: dict[tuple[str, str], int] = {}
        for sign, triples in ((1, self._inserted), (-1, self._deleted)):
            for head, relation, tail in triples:
                if relation == SUBPROPERTY and (tail in LABEL_RELATIONS or tail in SKOS_LABELS):
                    raise NotAnOverlayError(f"{head} is declared a kind of {tail}")
                if not rules.is_called_a_name(relation):
                    continue
                for text in texts_of([tail]):
                    total, distinct = texts.get(relation, (0, 0))
                    if (relation, text) not in known:
                        known[relation, text] = self._bearers(relation, text)
                    before = known[relation, text]
                    known[relation, text] += sign
                    after = known[relation, text]
                    texts[relation] = total + sign, distinct + (after > 0) - (before > 0)
        changed = replace(rules, texts=texts)
        for relation in texts:
            if rules.are_names(relation) != changed.are_names(relation) and relation in rules.texts:
                raise NotAnOverlayError(f"whether {relation} gives names is decided otherwise")
            if relation not in rules.texts and not changed.are_names(relation):
                raise NotAnOverlayError(f"whether {relation} gives names is decided otherwise")
        return changed

    def _bearers(self, relation: str, text: str) -> int:
        """The number of facts of the base by which a relation leads to a text, in any language."""
        link = self._links.number(relation)
        if link is None:
            return 0
        literals = (n for n in self._terms.owners_of(text) if not self._terms.id_of(n).endswith(">"))
        return sum(
            len(self._in.neighbours(n, link)) for n in literals if self._terms.id_of(n).startswith('"')
        )

    def _renamed(self, gone: set[int]) -> set[str]:
        """The ids of the nodes whose names may have changed."""
        if self._named:
            return set()
        heads = {
            head
            for triples in (self._inserted, self._deleted)
            for head, relation, _ in triples
            if self._rules.may_name(relation)
        }
        return {id_ for id_ in heads if self._terms.number(id_) not in gone}

    def _named_by_facts(self, id_: str) -> tuple[str, list[str]]:
        """The label of a node, and its names other than its id."""
        number = self._terms.number(id_)
        before = set(self._naming_facts(number)) if number is not None else set()
        deleted, inserted = (
            {(relation, tail) for _, relation, tail in triples if self._rules.may_name(relation)}
            for triples in (self._deleted_at(id_), self._inserted_at(id_))
        )
        elsewhere = self._names_elsewhere(number, before)
        facts = before - deleted | inserted
        return shown_first(id_, sorted(elsewhere + self._rules.names(facts, bool(elsewhere))))

    def _names_elsewhere(self, number: int | None, facts: set[tuple[str, str]]) -> list[tuple[int, str]]:
        """The names that a node has from a file of labels, since its facts do not give them."""
        if number is None:
            return []
        given = {name for _, name in self._old_rules.names(facts)}
        label = self._terms.item(number).label
        others = [name for name in self._terms.names_of(number) if name not in given]
        return [(0 if name == label else ALIAS, name) for name in others]

    def _naming_facts(self, number: int) -> Iterator[tuple[str, str]]:
        for link in self._out.relations_of(number):
            relation = self._links.id_of(link)
            if self._rules.may_name(relation):
                for tail in self._out.neighbours(number, link):
                    yield relation, self._terms.id_of(tail)

    @cached_property
    def _by_head(self) -> tuple[dict[str, list[Triple]], dict[str, list[Triple]]]:
        grouped: tuple[dict[str, list[Triple]], dict[str, list[Triple]]] = {}, {}
        for triples, of in zip((self._inserted, self._deleted), grouped, strict=True):
            for triple in triples:
                of.setdefault(triple[0], []).append(triple)
        return grouped

    def _inserted_at(self, id_: str) -> list[Triple]:
        return self._by_head[0].get(id_, [])

    def _deleted_at(self, id_: str) -> list[Triple]:
        return self._by_head[1].get(id_, [])

    def _relations(self, names: Mapping[str, tuple[str, list[str]]], nodes_gone: set[int]) -> ChangedTerms:
        change: Counter[str] = Counter(relation for _, relation, _ in self._inserted)
        change.subtract(relation for _, relation, _ in self._deleted)
        gone: set[int] = set()
        new: list[Item] = []
        own: dict[str, list[str]] = {}
        fewer = {self._links.number(id_): -count for id_, count in change.items() if count < 0}
        left = self._base.with_more({link: count for link, count in fewer.items() if link is not None})
        for id_, count in change.items():
            link = self._links.number(id_)
            if link is None:
                node = self._terms.number(id_)
                if id_ in names:
                    label, others = names[id_]
                elif node is not None and node not in nodes_gone and not self._named:
                    label, others = self._terms.item(node).label, self._terms.names_of(node)
                else:
                    label, others = id_, []
                new.append(Item(id_, label))
                own[id_] = others
            elif count < 0 and link not in left:
                gone.add(link)
        for id_, (label, others) in names.items():
            link = self._links.number(id_)
            if link is None or link in gone:
                continue
            if (self._links.item(link).label, set(self._links.names_of(link))) != (label, set(others)):
                raise NotAnOverlayError(f"the relation {id_} has other names")
        for id_ in self._vanished(names):
            raise NotAnOverlayError(f"the relation {id_} has other names")
        placed = placed_between(self._links, new)
        return ChangedTerms(self._links, gone, placed, {n: own[item.id] for n, item in placed.items()})

    def _vanished(self, names: Mapping[str, object]) -> Iterator[str]:
        """Relations that had names as nodes, which are gone."""
        if self._named:
            return
        for id_ in {head for head, _, _ in self._deleted} - names.keys():
            link, node = self._links.number(id_), self._terms.number(id_)
            if link is not None and node is not None and self._links.names_of(link):
                lost = any(self._rules.may_name(relation) for _, relation, _ in self._deleted_at(id_))
                if lost:
                    yield id_

    def _edges(
        self, nodes: ChangedTerms, relations: ChangedTerms, moved: Mapping[str, int]
    ) -> tuple[list[Edge], list[Edge]]:
        """The triples that lie over the base, and those of the base that do not count any more."""
        removed: set[tuple[int, int, int]] = {
            (number_in(self._terms, head), number_in(self._links, relation), number_in(self._terms, tail))
            for head, relation, tail in self._deleted
        }
        deleted, added = set(removed), set[Edge]()
        for number in moved.values():
            for link in self._out.relations_of(number):
                removed.update((number, link, tail) for tail in self._out.neighbours(number, link))
            for link in self._in.relations_of(number):
                removed.update((head, link, number) for head in self._in.neighbours(number, link))
        renumbered = {number: number_in(nodes, id_) for id_, number in moved.items()}
        for head, link, tail in removed - deleted:
            added.add((renumbered.get(head, head), link, renumbered.get(tail, tail)))
        added.update(
            (number_in(nodes, triple[0]), number_in(relations, triple[1]), number_in(nodes, triple[2]))
            for triple in self._inserted
        )
        return sorted(added), sorted(removed)

    def _types(
        self, relations: Mapping[Number, Item], into: ChangedSide, added: list[Edge], removed: list[Edge]
    ) -> list[Number]:
        links = {number for number, item in relations.items() if self._rules.states_type(item.id)}
        affected = {tail for _, link, tail in (*added, *removed) if link in links}
        gone = {link for link, item in self._base.links() if self._rules.states_type(item.id)} - links
        affected.update(tail for _, link, tail in removed if link in gone)
        kept = [number for number in self._base.type_numbers() if number not in affected]
        there = [tail for tail in affected if not links.isdisjoint(into.relations_of(tail))]
        return sorted([*kept, *there])

    def _degree(self, number: int) -> int:
        return len(self._out.all_neighbours(number)) + len(self._in.all_neighbours(number))

    def _num_entities(self, ids: Iterable[str]) -> int:
        return sum(not self._is_literal(id_) for id_ in ids)

    def _is_literal(self, id_: str) -> bool:
        return not self._named and id_.startswith('"')


def _turned(edge: Edge) -> Edge:
    return edge[2], edge[1], edge[0]

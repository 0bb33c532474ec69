"""The index of a graph that changed: that of its base, which never changes, and what lies over it.

Nodes are numbered in the order of their labels, and results are runs of ascending numbers. A node that is
added, or that a change names otherwise, gets a number between two of the base, with a fraction: 41.5 lies
between the nodes 41 and 42. Everything that compares numbers therefore works as in the base, and runs of
nodes that did not change are those of the base, without a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, overload

from kbqa.kg.actions import Item
from kbqa.kg.embedded.names import (
    ALIAS,
    LABEL_RELATIONS,
    SKOS_LABELS,
    SUBPROPERTY,
    TYPE_RELATIONS,
    NamingRules,
    literal_value,
    shown_first,
    texts_of,
)
from kbqa.kg.embedded.overlay_sides import ChangedSide, Edge, Number
from kbqa.kg.embedded.terms import Terms

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


class ChangedTerms:
    """`Terms` over those of a base.

    Args:
        gone: numbers of the base that stand for nothing any more, or for a node that was moved.
        placed: number → id and label of what the base has not, or names otherwise.
        names: number of the base, or of `placed` → its names other than its id, where these changed.
    """

    def __init__(
        self,
        base: Terms,
        gone: set[int],
        placed: Mapping[Number, Item],
        names: Mapping[Number, list[str]],
    ) -> None:
        self._base, self._gone, self._placed, self._own_names = base, gone, placed, names
        self._numbers = {item.id: number for number, item in placed.items()}
        self._by_name: dict[str, list[Number]] = {}
        for number, own in names.items():
            for name in own:
                self._by_name.setdefault(name, []).append(number)

    @property
    def placed(self) -> Mapping[Number, Item]:
        """What the base has not, or names otherwise, by number."""
        return self._placed

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._placed)

    def number(self, id_: str) -> Number | None:
        own = self._numbers.get(id_)
        if own is not None:
            return own
        number = self._base.number(id_)
        return None if number in self._gone else number

    def item(self, number: Number) -> Item:
        own = self._placed.get(number)
        return self._base.item(int(number)) if own is None else own

    def id_of(self, number: Number) -> str:
        return self.item(number).id

    def names_of(self, number: Number) -> list[str]:
        own = self._own_names.get(number)
        if own is not None or number in self._placed:
            return own or []
        return self._base.names_of(int(number))

    def resolve(self, name: str) -> tuple[str, ...]:
        return (name,) if self.number(name) is not None else self.labelled_by(name)

    def labelled_by(self, label: str) -> tuple[str, ...]:
        kept = (n for n in self._base.owners_of(label) if n not in self._gone and n not in self._own_names)
        return tuple(sorted(self.id_of(number) for number in (*kept, *self._by_name.get(label, ()))))

    def labelled(self) -> Iterator[tuple[str, Item]]:
        for number, label, item in self._base.labelled_numbers():
            if number not in self._gone and number not in self._own_names:
                yield label, item
        for own in {*self._own_names, *self._placed}:
            item = self.item(own)
            if item.label == item.id:
                yield item.id, item
            yield from ((name, item) for name in self.names_of(own))


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


class _Builder:
    def __init__(self, base: Adjacency, rules: NamingRules, named: bool, difference: Difference) -> None:
        self._base, self._named = base, named
        self._terms, self._links = base.terms
        self._out, self._in = base.sides
        self._inserted, self._deleted = difference
        self._rules = rules if named else self._changed_rules(rules)
        self._old_rules = rules

    def build(self) -> Overlay:
        degrees: Counter[str] = Counter()
        for sign, triples in ((1, self._inserted), (-1, self._deleted)):
            for head, _, tail in triples:
                degrees[head] += sign
                degrees[tail] += sign
        gone: set[int] = set()
        new: list[Item] = []
        names: dict[str, tuple[str, list[str]]] = {}
        for id_, change in degrees.items():
            number = self._terms.number(id_)
            if number is None:
                if self._is_literal(id_):
                    names[id_] = shown_first(id_, [(0, literal_value(id_))])
                new.append(Item(id_, id_))
            elif change < 0 and not self._degree(number) + change:
                gone.add(number)
        moved: dict[str, int] = {}
        for id_ in self._renamed(new, gone):
            label, others = names[id_] = self._named_by_facts(id_)
            number = self._terms.number(id_)
            if number is not None and label != self._terms.item(number).label:
                if self._degree(number) > MAX_MOVED:
                    raise NotAnOverlayError(f"{id_} has another label and many facts")
                moved[id_] = number
        items = [Item(item.id, names[item.id][0]) if item.id in names else item for item in new]
        items += [Item(id_, names[id_][0]) for id_ in moved]
        placed = _placed(self._terms, items)
        own_names: dict[Number, list[str]] = {}
        numbers = {item.id: number for number, item in placed.items()}
        for id_, (_, others) in names.items():
            own_names[numbers[id_] if id_ in numbers else _known(self._terms, id_)] = others
        nodes = ChangedTerms(self._terms, gone | set(moved.values()), placed, own_names)
        relations = self._relations(names, gone)
        kept: dict[Number, Item] = {
            link: item for link, item in self._base.links() if relations.number(item.id) == link
        }
        kept.update(relations.placed)
        added, removed = self._edges(nodes, relations, moved)
        origins = {numbers[id_]: number for id_, number in moved.items()}
        out, into = (
            ChangedSide(side, len(self._terms), drop, add, origins)
            for side, drop, add in (
                (self._out, removed, added),
                (self._in, map(_turned, removed), map(_turned, added)),
            )
        )
        return Overlay(
            nodes,
            relations,
            out,
            into,
            frozenset({*names, *(item.id for item in new), *map(self._terms.id_of, gone)}),
            dict(sorted(kept.items())),
            self._types(nodes, relations, into, added, removed),
            self._base.triples + len(self._inserted) - len(self._deleted),
            self._base.entities
            + sum(not self._is_literal(item.id) for item in new)
            - sum(not self._is_literal(self._terms.id_of(number)) for number in gone),
        )

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

    def _renamed(self, new: Iterable[Item], gone: set[int]) -> set[str]:
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
            elif count < 0 and not self._base.num_with(link) + count:
                gone.add(link)
        for id_, (label, others) in names.items():
            link = self._links.number(id_)
            if link is None or link in gone:
                continue
            if (self._links.item(link).label, set(self._links.names_of(link))) != (label, set(others)):
                raise NotAnOverlayError(f"the relation {id_} has other names")
        for id_ in self._vanished(names):
            raise NotAnOverlayError(f"the relation {id_} has other names")
        placed = _placed(self._links, new)
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
            (_known(self._terms, head), _known(self._links, relation), _known(self._terms, tail))
            for head, relation, tail in self._deleted
        }
        deleted, added = set(removed), set[Edge]()
        for number in moved.values():
            for link in self._out.relations_of(number):
                removed.update((number, link, tail) for tail in self._out.neighbours(number, link))
            for link in self._in.relations_of(number):
                removed.update((head, link, number) for head in self._in.neighbours(number, link))
        renumbered = {number: _known(nodes, id_) for id_, number in moved.items()}
        for head, link, tail in removed - deleted:
            added.add((renumbered.get(head, head), link, renumbered.get(tail, tail)))
        added.update(
            (_known(nodes, triple[0]), _known(relations, triple[1]), _known(nodes, triple[2]))
            for triple in self._inserted
        )
        return sorted(added), sorted(removed)

    def _types(
        self,
        nodes: ChangedTerms,
        relations: ChangedTerms,
        into: ChangedSide,
        added: list[Edge],
        removed: list[Edge],
    ) -> list[Number]:
        ids = TYPE_RELATIONS.union(self._rules.type_relations)
        links = {number for id_ in ids if (number := relations.number(id_)) is not None}
        affected = {tail for _, link, tail in (*added, *removed) if link in links}
        gone = {link for id_ in ids if (link := self._links.number(id_)) is not None} - links
        affected.update(tail for _, link, tail in removed if link in gone)
        kept = [number for number in self._base.type_numbers() if number not in affected]
        there = [tail for tail in affected if not links.isdisjoint(into.relations_of(tail))]
        return sorted([*kept, *there])

    def _degree(self, number: int) -> int:
        return len(self._out.all_neighbours(number)) + len(self._in.all_neighbours(number))

    def _is_literal(self, id_: str) -> bool:
        return not self._named and id_.startswith('"')


def _placed(terms: Terms, items: list[Item]) -> dict[Number, Item]:
    """A number for each item, in the order of labels, then ids, between two of the base."""
    between: dict[int, list[Item]] = {}
    for item in sorted(items, key=_order):
        between.setdefault(terms.rank(item.label, item.id), []).append(item)
    return {
        place - 1 + rank / (len(some) + 1): item
        for place, some in between.items()
        for rank, item in enumerate(some, start=1)
    }


@overload
def _known(terms: Terms, id_: str) -> int: ...
@overload
def _known(terms: ChangedTerms, id_: str) -> Number: ...
def _known(terms: Terms | ChangedTerms, id_: str) -> Number:
    number = terms.number(id_)
    assert number is not None
    return number


def _order(item: Item) -> tuple[str, str]:
    return item.label, item.id


def _turned(edge: Edge) -> Edge:
    return edge[2], edge[1], edge[0]

"""The graph of the world with every operation: RDF with numbers, dates, types and namesakes.

    <world:m.0k3fa> <http://www.w3.org/2000/01/rdf-schema#label> "The Silent Brost" .
    <world:m.0k3fa> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <world:film.film> .
    <world:m.0k3fa> <world:film.film.runtime> "142"^^<http://www.w3.org/2001/XMLSchema#integer> .

Some books have the names of films and some companies the names of cities, so that only their types
distinguish them. Some facts are missing, and often only a fact or its reverse is stated.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from kbqa.datasets.world.names import draw_names
from kbqa.datasets.world.schema import LABEL, TYPE, Link, Quantity, Schema, Tenure
from kbqa.kg.values import NUMBER_TYPES
from kbqa.logical_forms.algebra import XSD, Literal
from kbqa.logical_forms.compiler import literal_term

Node = str | Literal
"""An entity by its id, or a value."""

Fact = tuple[str, str, Node]

_SHARE_OF_NAMESAKES = 0.15
_OPEN = 0.7  # share of a holder's last tenures that have not ended


class Valued(NamedTuple):
    """A value that a relation leads to from a head.

    Attributes:
        key: what it is compared by; see `comparable`.
    """

    key: float | str
    head: str
    value: Node


@dataclass(frozen=True)
class Facts:
    """A graph, with look-ups that do not use SPARQL.

    Attributes:
        facts: without names and types.
        names: entity → label; nodes that represent facts with several parts have none.
        kinds: entity → key of its kind.
        written_as: relation to texts that are numbers or dates → full IRI of their datatype.
    """

    schema: Schema
    facts: tuple[Fact, ...]
    names: dict[str, str]
    kinds: dict[str, str]
    written_as: Mapping[str, str] = field(default_factory=dict)

    def value(self, tail: Node, relation: str) -> Node:
        """What a relation leads to, as a value that can be compared, if it is written as one."""
        datatype = self.written_as.get(relation)
        if datatype is None:
            return tail
        return Literal(tail.lexical if isinstance(tail, Literal) else self.names[tail], datatype)

    def ordered(self, relation: str) -> Sequence[Valued]:
        """The values that a relation leads to, from the lowest on; equal ones as the facts state them."""
        if relation not in self._ordered:
            valued = [
                Valued(comparable(value), head, value)
                for head in self.subjects[relation]
                for value in (self.value(tail, relation) for tail in self.tails[head, relation])
            ]
            self._ordered[relation] = sorted(valued, key=attrgetter("key"))
        return self._ordered[relation]

    def lines(self) -> Iterator[str]:
        """The graph as lines of N-Triples."""
        for entity, kind in self.kinds.items():
            yield f"<{entity}> <{TYPE}> <{self.schema.class_of(kind)}> ."
            if entity in self.names:
                yield f"<{entity}> <{LABEL}> {literal_term(Literal(self.names[entity]))} ."
        named: tuple[Link | Quantity, ...] = (*self.schema.links, *self.schema.quantities)
        for relation in named:
            if relation.label:
                label = literal_term(Literal(relation.label))
                yield f"<{self.schema.iri(relation.name)}> <{LABEL}> {label} ."
        for subject, predicate, object_ in self.facts:
            term = literal_term(object_) if isinstance(object_, Literal) else f"<{object_}>"
            yield f"<{subject}> <{predicate}> {term} ."

    @cached_property
    def _ordered(self) -> dict[str, list[Valued]]:
        return {}

    @cached_property
    def tails(self) -> dict[tuple[str, str], list[Node]]:
        """(head, relation) → tails."""
        tails = defaultdict(list)
        for head, relation, tail in self.facts:
            tails[head, relation].append(tail)
        return dict(tails)

    @cached_property
    def heads(self) -> dict[tuple[Node, str], list[str]]:
        """(tail, relation) → heads."""
        heads = defaultdict(list)
        for head, relation, tail in self.facts:
            heads[tail, relation].append(head)
        return dict(heads)

    @cached_property
    def subjects(self) -> dict[str, list[str]]:
        """Relation → distinct heads."""
        subjects = defaultdict(list)
        for head, relation in self.tails:
            subjects[relation].append(head)
        return dict(subjects)

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """Kind → entities."""
        members = defaultdict(list)
        for entity, kind in self.kinds.items():
            members[kind].append(entity)
        return dict(members)

    @cached_property
    def bearers(self) -> dict[str, list[str]]:
        """Name → entities."""
        bearers = defaultdict(list)
        for entity, name in self.names.items():
            bearers[name].append(entity)
        return dict(bearers)


def comparable(value: Node) -> float | str:
    """A key for comparing values: a number as float; a date as text, which orders dates of one type."""
    if isinstance(value, Literal) and value.datatype in NUMBER_TYPES:
        return float(value.lexical)
    return value.lexical if isinstance(value, Literal) else value


def generate_facts(schema: Schema, rng: random.Random, size: float = 1.0) -> Facts:
    """Generate a world of a schema; its classes have `count` * `size` members."""
    return _Generation(schema, rng, size).facts()


class _Generation:
    def __init__(self, schema: Schema, rng: random.Random, size: float) -> None:
        self._schema, self._rng, self._size = schema, rng, size
        self._numbers = iter(rng.sample(range(36**4), int(8_000 * max(1.0, size))))
        self._names: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._members: dict[str, list[str]] = {}
        self._facts: list[Fact] = []

    def facts(self) -> Facts:
        self._populate()
        self._link()
        for quantity in self._schema.quantities:
            self._facts += self._values(quantity)
        for tenure in self._schema.tenures:
            for holder in self._members[tenure.head]:
                self._hold(tenure, holder)
        self._mislead()
        return Facts(self._schema, tuple(dict.fromkeys(self._facts)), self._names, self._kinds)

    def _populate(self) -> None:
        named: dict[str, list[str]] = {}
        for key, kind in self._schema.kinds.items():
            count = max(4, int(kind.count * self._size)) if kind.like else 0
            named[key] = draw_names(kind.like, count, self._rng) if count else []
            if key in self._schema.namesakes:
                shared = named[self._schema.namesakes[key]]
                names = self._rng.sample(shared, min(int(count * _SHARE_OF_NAMESAKES), len(shared)))
                named[key][: len(names)] = names
            self._members[key] = [self._entity(key, name) for name in named[key]]

    def _entity(self, kind: str, name: str = "") -> str:
        entity = self._schema.iri(f"m.0{_base_36(next(self._numbers))}")
        self._kinds[entity] = kind
        if name:
            self._names[entity] = name
        return entity

    def _link(self) -> None:
        rng = self._rng
        for link in self._schema.links:
            # A few tails are popular, so that sets have several members.
            popular = {tail: _popular(self._members[tail], rng) for tail in link.tails}
            for head in self._members[link.head]:
                if rng.random() < link.share:
                    for _ in range(rng.randint(*link.count)):
                        tail = rng.choice(popular[rng.choice(link.tails)])
                        if tail != head:
                            self._facts.append((head, self._schema.iri(link.name), tail))

    def _values(self, quantity: Quantity) -> Iterator[Fact]:
        for head in self._members[quantity.head]:
            if self._rng.random() < quantity.share:
                value = Literal(self._lexical(quantity), XSD + quantity.datatype)
                yield head, self._schema.iri(quantity.name), value

    def _lexical(self, quantity: Quantity) -> str:
        number = self._rng.randint(quantity.low, quantity.high)
        if quantity.datatype == "date":
            return _day(number, self._rng)
        return f"{number / 100:.15g}" if quantity.datatype in ("float", "decimal") else str(number)

    def _hold(self, tenure: Tenure, holder: str) -> None:
        """Add one to three tenures; each begins in the year after the previous one ended."""
        rng, iri = self._rng, self._schema.iri
        year = rng.randint(1960, 1995)
        count = rng.randint(1, 3)
        for number in range(count):
            node = self._entity(tenure.kind)
            last = min(year + rng.randint(1, 8), 2013)
            self._facts.append((holder, iri(tenure.holder), node))
            self._facts.append((node, iri(tenure.held), rng.choice(self._members[tenure.tail])))
            if tenure.also is not None:
                relation, kind = tenure.also
                self._facts.append((node, iri(relation), rng.choice(self._members[kind])))
            self._facts.append((node, iri(tenure.begins), _date(_day(year, rng))))
            if number + 1 < count or rng.random() >= _OPEN:
                self._facts.append((node, iri(tenure.ends), _date(_day(last, rng, late=True))))
            year = last + 1

    def _mislead(self) -> None:
        """State the reverse of some links, for a part of the entities only."""
        for decoy in self._schema.decoys:
            told: dict[str, bool] = {}
            for head, relation, tail in tuple(self._facts):
                if relation != self._schema.iri(decoy.reverse_of) or not isinstance(tail, str):
                    continue
                if told.setdefault(tail, self._rng.random() < decoy.share):
                    self._facts.append((tail, self._schema.iri(decoy.name), head))


def _popular(members: Sequence[str], rng: random.Random) -> list[str]:
    """The members, with a third of them three times."""
    shuffled = rng.sample(members, len(members))
    return [*shuffled, *shuffled[: len(shuffled) // 3] * 2]


def _day(year: int, rng: random.Random, *, late: bool = False) -> str:
    month = rng.randint(7, 12) if late else rng.randint(1, 6) if rng.random() < 0.5 else rng.randint(1, 12)
    return f"{year}-{month:02}-{rng.randint(1, 28):02}"


def _date(day: str) -> Literal:
    return Literal(day, XSD + "date")


def _base_36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits

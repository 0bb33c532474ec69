"""The expansions of a logical form: the longer forms that a graph has.

As in Pangu (Gu et al. 2023), an agent chooses among forms instead of writing one: every expansion is a
whole form that has members (a comparison, one that may have), and its operations are those of KBQA-R1
(Table II). An agent begins without a form, and ends at the form whose members answer the question.

    start   all members of a class                       (film.film)
    join    to what a relation leads to                  (JOIN (R directed_by) …); back: (JOIN directed_by …)
            through nodes without names, if wanted       (JOIN (R mayor) (JOIN (R government) Rome))
    keep    the members with a path to another topic     (AND … (JOIN starring Al Pacino))
    max     the members with the greatest value; min     (ARGMAX … runtime)
    gt      the members whose value is greater than one that the question mentions; ge, lt, le
    at      the members whose interval includes a time that the question mentions      (TC … from 2009),
            or which are linked to such an interval                        (JOIN (R mayor) (TC … from 2009))
    type    the members of a class                       (AND (film.film) …)
    count   their number                                 (COUNT …)
    ask     whether another topic is one of them         (ASK … Al Pacino)

No join leads to a topic that the form names, unless the form has no members otherwise: the father of the
children of X is X. A join that goes straight back by the relation before is not listed where it leads back
to a topic alone, or to more than `MAX_SHARING` entities: people ask for the films with the director of Heat,
and not for all films of its genre.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from kbqa.kg.actions import Item
from kbqa.kg.ranking.ranker import Ranker
from kbqa.kg.retrieval.compound_values import is_nameless
from kbqa.kg.retrieval.look_ahead import MAX_FOLLOWED, MAX_SHARING, NAMING, Hop, hops_of, steps
from kbqa.kg.retrieval.missing import missing_beside, missing_elsewhere
from kbqa.kg.store import MAX_SURROUNDED, Attribute, Bond, GraphStore, Survey
from kbqa.kg.values import literal_value
from kbqa.logical_forms.algebra import (
    And,
    Ask,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Extreme,
    Join,
    Literal,
    Relation,
    Superlative,
    Timed,
)
from kbqa.logical_forms.mentions import Mentioned, bounds, mentioned
from kbqa.logical_forms.s_expression import print_s_expression

LARGEST = 6
"""Operators and leaves that an operation adds to a form, at most."""
_CLASSES = 12  # classes with which a form may begin
_LOOKED_AT = 5  # nodes, to see whether they have names


class Operation(StrEnum):
    """What an expansion does."""

    START = "start"
    JOIN = "join"
    KEEP = "keep"
    MAX = "max"
    MIN = "min"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"
    AT = "at"
    TYPE = "type"
    COUNT = "count"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Expansion:
    """A form made longer by one operation.

    Attributes:
        path: the relations of the operation, each with whether it is followed from tail to head.
        operand: the class, the topic, the value or the time, if the operation has one.
        is_date: whether the operation compares dates.
        of: class of the topic that a join begins at, where another topic has the same name.
        nodes: ids of nodes that a join is followed from, to see what lies behind it.
        behind: relations of the nodes that a join leads to, each like those of the path.
    """

    form: Expression
    operation: Operation
    path: tuple[Hop, ...] = ()
    operand: Item | None = None
    is_date: bool = False
    of: str = ""
    nodes: Sequence[str] = ()
    behind: tuple[Hop, ...] = ()

    def to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {
            "form": print_s_expression(self.form),
            "operation": self.operation,
            "path": _hops(self.path),
        }
        if self.operand is not None:
            written["operand"] = {"id": self.operand.id, "label": self.operand.label}
        if self.behind:
            written["behind"] = _hops(self.behind)
        return written | ({"date": True} if self.is_date else {}) | ({"of": self.of} if self.of else {})


def _hops(relations: Sequence[Hop]) -> list[dict[str, Any]]:
    return [{"id": r.id, "label": r.label, "inverse": inverse} for r, inverse in relations]


@dataclass(frozen=True, slots=True)
class Source:
    """A topic or a form, from which joins lead.

    Attributes:
        form: the topic as a leaf, or the form.
        nodes: ids of the entities or values that the topic stands for, or of members of the form.
        survey: what the nodes have.
        topic: the topic, if it is one.
        of: its class, where another topic has the same name.
    """

    form: Entity | Literal | Expression
    nodes: Sequence[str]
    survey: Survey
    topic: Item | None = None
    of: str = ""

    def join(self, hop: Hop) -> Join:
        """One hop further."""
        relation, inverse = hop
        # JOIN takes no bare class.
        form = And(self.form, self.form) if isinstance(self.form, Class) else self.form
        # A form describes a node by what it is linked to, so its relation is read the other way.
        return Join(Relation(relation.id, inverse=not inverse), form)

    def expansion(self, hop: Hop, nodes: Sequence[str]) -> Expansion:
        """The join as an expansion; `nodes` are ids of nodes that have its relation."""
        return Expansion(self.join(hop), Operation.JOIN, (hop,), self.topic, of=self.of, nodes=nodes)


@dataclass(frozen=True, slots=True)
class Expansions:
    """The expansions of forms for one question, in one graph.

    Attributes:
        types: ranks classes for the question.
        topics: what a form says of each topic that it does not name yet.
        wanted: the operations of the expansions.
        returning: whether sets contain the topics that their forms name.

    All methods raise QueryError and GraphUnavailableError, as those of `GraphStore`.
    """

    store: GraphStore
    types: Ranker
    question: str
    topics: Mapping[str, Entity | Literal]
    wanted: frozenset[Operation]
    returning: bool

    def joins(self, source: Source) -> Iterator[Expansion]:
        """One hop along each relation of the nodes, in both directions."""
        if Operation.JOIN not in self.wanted:
            return
        for relations, inverse in ((source.survey.into, True), (source.survey.out, False)):
            for relation in relations:
                hop = relation, inverse
                if not self._turns_back(source.join(hop)):
                    yield source.expansion(hop, source.nodes[:MAX_FOLLOWED])

    def through(self, source: Source) -> Iterator[Expansion]:
        """Two hops at once, through nodes without names, from others.

        Such a node holds the parts of a fact (a term of office: who, where, from when), so one hop to it
        leads to nothing that a question asks for. A class without a name is none of these.
        """
        if self._are_nameless(self.store.items(source.nodes[:_LOOKED_AT]).values()):
            return
        types = set(self.store.type_relations)
        for join in self.joins(source):
            if join.path[0][0].id in types:
                continue
            walk = self.store.follow(join.nodes, steps(join.path), limit=_LOOKED_AT)
            if not self._are_nameless(walk.ends.items):
                continue
            for relation, inverse in hops_of(walk):
                form = Join(Relation(relation.id, inverse=not inverse), join.form)
                passed_over = relation.id in types or self.store.relation_term(relation.id) in NAMING
                if not passed_over and not self._turns_back(form):
                    yield replace(join, form=form, path=(*join.path, (relation, inverse)))

    def missing(self, source: Source, asked: Sequence[Item], lacking: Iterable[str]) -> Iterator[Expansion]:
        """The joins that lead nowhere from the nodes.

        Some lead somewhere from others like the nodes, and some from nowhere in the graph.

        Args:
            asked: relations of the graph that the question asks for.
            lacking: names of relations that it asks for and the graph lacks altogether.
        """
        if Operation.JOIN not in self.wanted:
            return
        found = dict(missing_beside(self.store, source.nodes, source.survey))
        if source.topic is not None:
            found = dict(missing_elsewhere(self.store, asked, source.survey)) | found
        yield from (source.expansion(hop, others) for hop, others in found.items())
        for name in lacking:
            yield source.expansion((Item(name.replace(" ", "_"), name), False), ())

    def starts(self) -> Iterator[Expansion]:
        """The classes with which a question may begin."""
        if Operation.START not in self.wanted:
            return
        # The types of the store, since a subgraph does not have all of its graph's.
        ranked = self.types.rank(self.question, self.store.types(), top_k=_CLASSES)
        yield from (Expansion(Class(item.id), Operation.START, operand=item) for item in ranked)

    def selections(self, form: Expression, survey: Survey, total: int) -> Iterator[Expansion]:
        """The forms that have some, but not all of the members."""
        asked = mentioned(self.question)
        for topic, bonds in survey.bonds.items():
            yield from self._bound(form, topic, bonds, total)
        for attribute in survey.attributes:
            yield from self._valued(form, attribute, asked, total)
        for kind, count in survey.classes:
            if count < total:
                yield from self._if_wanted(And(Class(kind.id), form), Operation.TYPE, operand=kind)
        yield from self._at(form, survey, asked.times, total)
        if asked.times and isinstance(form, Join) and not isinstance(form.source, Entity | Literal):
            before = self.store.survey(form.source, returning=self.returning)
            yield from self._at(form.source, before, asked.times, total, then=form.relation)

    def count(self, form: Expression) -> Iterator[Expansion]:
        """The number of members."""
        return self._if_wanted(Count(form), Operation.COUNT)

    def asks(self, form: Expression) -> Iterator[Expansion]:
        """Whether each topic is one of the members."""
        for topic, leaf in self.topics.items():
            yield from self._if_wanted(Ask(form, leaf), Operation.ASK, operand=Item(topic, self.label(topic)))

    def label(self, topic: str) -> str:
        """What the graph calls a topic; its id if the graph does not know it."""
        found = self.store.items(self.store.resolve_entity(topic))
        return next(iter(found.values())).label if found else topic

    def _are_nameless(self, items: Collection[Item]) -> bool:
        return bool(items) and all(is_nameless(self.store, item) for item in items)

    def _turns_back(self, join: Join) -> bool:
        """Whether a join goes straight back to nothing new, or to too much.

        The director of the films by Mann is Mann; the films in the language of Heat are half of the graph.
        """
        before = join.source
        while isinstance(before, Superlative | Timed):
            before = before.source
        return (
            isinstance(before, Join)
            and before.relation == Relation(join.relation.name, inverse=not join.relation.inverse)
            and not 0 < self.store.members(join, limit=0, returning=self.returning).total <= MAX_SHARING
        )

    def _bound(self, form: Expression, topic: str, bonds: Sequence[Bond], total: int) -> Iterator[Expansion]:
        """The members with a path to another topic."""
        label = self.label(topic)
        for bond in bonds:
            if bond.members < total:
                other: Entity | Literal | Expression = self.topics[topic]
                for relation, inverse in reversed(bond.path):
                    other = Join(Relation(relation.id, inverse), other)
                assert not isinstance(other, Entity | Literal)  # a bond has a relation
                kept = And(form, other)
                yield from self._if_wanted(kept, Operation.KEEP, bond.path, Item(topic, label))

    def _valued(
        self, form: Expression, attribute: Attribute, asked: Mentioned, total: int
    ) -> Iterator[Expansion]:
        """The members with an extreme value, or one on a side of a number or date that the question mentions.

        An expansion of which the values show that it has none or all of the members is left out. They show
        nothing about members that were not surveyed.
        """
        path = tuple((relation, False) for relation in attribute.path)
        relations = tuple(Relation(relation.id) for relation in attribute.path)
        least, greatest = attribute.least, attribute.greatest
        is_partial = attribute.members < total
        if is_partial or least.key < greatest.key:
            for operation, extreme in ((Operation.MAX, Extreme.MAX), (Operation.MIN, Extreme.MIN)):
                most = Superlative(extreme, form, relations)
                yield from self._if_wanted(most, operation, path, is_date=least.is_date)
        is_surveyed = total <= MAX_SURROUNDED
        for mention, literals in bounds(asked, attribute.datatype):
            for comparator, literal in literals.items():
                bound = literal_value(literal)
                if bound is not None and is_surveyed:
                    holds = [comparator.holds(value.key, bound.key) for value in (least, greatest)]
                    if not any(holds) or (all(holds) and not is_partial):
                        continue
                compared = And(form, Comparison(comparator, relations, literal))
                operand = Item(mention, mention)
                yield from self._if_wanted(
                    compared, Operation(comparator.value), path, operand, is_date=least.is_date
                )

    def _at(
        self, form: Expression, survey: Survey, times: Sequence[str], total: int, then: Relation | None = None
    ) -> Iterator[Expansion]:
        """The members whose interval includes a time, or to what a relation leads from these."""
        for begins in survey.intervals:
            for time in times:
                timed: Expression = Timed(form, Relation(begins.id), time)
                if then is not None:
                    timed = Join(then, timed)
                wanted = list(self._if_wanted(timed, Operation.AT, ((begins, False),), Item(time, time)))
                # Nothing shows how many these are, and such questions are rare.
                if wanted and 0 < self.store.members(timed, limit=0, returning=self.returning).total < total:
                    yield from wanted

    def _if_wanted(
        self,
        form: Expression,
        operation: Operation,
        path: tuple[Hop, ...] = (),
        operand: Item | None = None,
        *,
        is_date: bool = False,
    ) -> Iterator[Expansion]:
        if operation in self.wanted:
            yield Expansion(form, operation, path, operand, is_date)

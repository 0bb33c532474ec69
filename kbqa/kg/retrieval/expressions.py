"""Logical forms over a graph: what their names stand for, who their members are, which relations they mean.

A name in an expression is an id of the graph, an exact label, or an id without its
namespace where that is Freebase's (`m.0abc`) or a well-known prefix stands for it
(`wd:Q42`). A label that several entities share means them all: the members are then the
union over its entities, for a superlative the extreme ones of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import NamedTuple

from kbqa.errors import LogicalFormError, QueryTimeoutError
from kbqa.kg.actions import ErrorKind, Failure, Item
from kbqa.kg.embedded.indexing import TYPE_RELATIONS
from kbqa.kg.handlers import Surroundings, failure, quote
from kbqa.kg.retrieval.execute_sparql import solve
from kbqa.kg.sparql.dialect import PREFIXES
from kbqa.kg.store import GraphStore
from kbqa.logical_forms.algebra import (
    XSD,
    And,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Join,
    Literal,
    Superlative,
    Timed,
    relations,
)
from kbqa.logical_forms.compiler import FREEBASE, FREEBASE_NAMESPACE, FormVocabulary, literal_term, to_sparql
from kbqa.logical_forms.s_expression import parse_literal, parse_s_expression

_RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
# Readings of an expression whose labels are shared; each is a query.
_MAX_READINGS = 16
# As SPARQL's JSON results call them; the second is Virtuoso's.
_LITERALS = ("literal", "typed-literal")


class Unanswered(Exception):
    """An expression that cannot be answered: carries the failure that says why out of a recursion."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class Members(NamedTuple):
    """Members of an expression, in the order of labels, then ids; whether there are more than these."""

    items: tuple[Item, ...]
    truncated: bool


def read_expression(text: str) -> Expression:
    """The expression that an action was sent.

    Raises:
        Unanswered: it is none; its details hold the `position` in characters from 1.
    """
    try:
        return parse_s_expression(text)
    except LogicalFormError as error:
        raise Unanswered(form_failure(error)) from error


def form_failure(error: LogicalFormError) -> Failure:
    where = None if error.position is None else {"position": error.position}
    return failure(ErrorKind.QUERY_SYNTAX, str(error), where)


@dataclass
class NameTable:
    """What the names of expressions stand for in a graph."""

    store: GraphStore
    _nodes: dict[Entity | Literal | Class, tuple[str, ...]] = field(default_factory=dict)

    def nodes(self, leaf: Entity | Literal | Class) -> tuple[str, ...]:
        """Ids of an entity, class or literal; none if the graph lacks it."""
        if leaf not in self._nodes:
            self._nodes[leaf] = self._literals(leaf) if isinstance(leaf, Literal) else self._entities(leaf)
        return self._nodes[leaf]

    def relations(self, name: str) -> tuple[str, ...]:
        """Ids of a relation; none if the graph lacks it."""
        return _first(self.store.resolve_relation, _spellings(name))

    def written(self, id_: str) -> str:
        """How an expression names an id: without Freebase's namespace, which every such name would repeat."""
        return id_.removeprefix(FREEBASE_NAMESPACE)

    def _entities(self, leaf: Entity | Class) -> tuple[str, ...]:
        name = leaf.id if isinstance(leaf, Entity) else leaf.name
        ids = _first(self.store.resolve_entity, _spellings(name))
        # A literal of that value is meant only if nothing else is called so.
        named = tuple(id_ for id_ in ids if not self.store.entity_term(id_).startswith('"'))
        return named or ids

    def _literals(self, literal: Literal) -> tuple[str, ...]:
        """The literal itself; else with the time zone of Freebase's dates; else all of its lexical form."""
        for reading in (literal, parse_literal(FREEBASE.literal(literal))):
            typed = {"datatype": reading.datatype}
            if reading.language is not None:
                typed = {"xml:lang": reading.language}
            id_ = self.store.id_of({"type": "literal", "value": reading.lexical, **typed})
            if self.store.item(id_) is not None:
                return (id_,)
        return self.store.resolve_entity(literal.lexical)


class FormEvaluation:
    """Evaluates expressions over one graph, all within one deadline.

    Args:
        now: the day that NOW means, `2015-08-10`.
    """

    def __init__(self, surroundings: Surroundings, *, now: str = FREEBASE.now) -> None:
        self.store, self.names = surroundings.store, NameTable(surroundings.store)
        self._now, self._until = now, time.monotonic() + surroundings.deadline_s
        self._deadline_s = surroundings.deadline_s

    def check(self, expression: Expression) -> None:
        """Whether the graph has what the expression names; literals may be absent.

        Raises:
            Unanswered: the first name that it lacks.
        """
        self.check_nodes(expression)
        for name in relations(expression):
            if not self.names.relations(name):
                raise Unanswered(
                    failure(ErrorKind.INVALID_RELATION, f"Relation {quote(name)} not found in KG")
                )

    def check_nodes(self, expression: Expression) -> None:
        """As `check`, for entities and classes alone."""
        for leaf in _leaves(expression):
            if not isinstance(leaf, Literal) and not self.names.nodes(leaf):
                name = leaf.id if isinstance(leaf, Entity) else leaf.name
                raise Unanswered(failure(ErrorKind.ENTITY_NOT_IN_KG, f"Entity {quote(name)} not found in KG"))

    def members(self, expression: Expression, *, limit: int | None = None) -> Members:
        """All members, or some that are at most `limit`. The names have to be there: see `check`.

        Raises:
            Unanswered: it cannot be compiled, or its labels are shared by too many.
            QueryError, GraphUnavailableError: as `GraphStore.query`.
        """
        readings = self._readings(expression)
        if isinstance(expression, Count) and len(readings) > 1:
            counted = self.members(expression.source)
            return Members((self._number(len(counted.items)),), counted.truncated)
        found: dict[str, Item] = {}
        truncated = False
        for vocabulary in readings:
            query = _compiled(expression, vocabulary)
            if limit is not None:
                # One more tells whether there are more.
                query += f"\nLIMIT {limit + 1}"
            solutions = solve(self.store, query, deadline_s=self._left())
            truncated = truncated or solutions.truncated
            terms = [row["x"] for row in solutions.bindings if "x" in row]
            found |= self._items(terms)
        items = sorted(found.values(), key=lambda item: (item.label, item.id))
        return Members(tuple(items[:limit]), truncated or len(items) > len(items[:limit]))

    def queries(self, expression: Expression) -> list[str]:
        """The queries whose solutions are the members, in `?x`: one for each reading of shared labels.

        Raises:
            Unanswered: as `members`.
        """
        return [_compiled(expression, vocabulary) for vocabulary in self._readings(expression)]

    def count(self, expression: Expression) -> int:
        """How many members there are; at least that many, where several entities share a label.

        Raises: as `members`.
        """
        if isinstance(expression, Count):
            return 1
        [number] = self.members(Count(expression)).items
        return int(number.label)

    def literal_valued(self, candidates: Sequence[Item]) -> list[Item]:
        """Those of some relations that have a literal for a value, judged by one value each.

        Raises:
            QueryError, GraphUnavailableError: as `GraphStore.query`.
        """
        parts = [
            f"{{ SELECT (?o AS ?o{place}) WHERE {{ ?s {self.store.relation_term(item.id)} ?o }} LIMIT 1 }}"
            for place, item in enumerate(candidates)
        ]
        query = f"SELECT * WHERE {{ {' UNION '.join(parts)} }}"
        solutions = solve(self.store, query, deadline_s=self._left())
        kinds = {name: term["type"] for row in solutions.bindings for name, term in row.items()}
        return [item for place, item in enumerate(candidates) if kinds.get(f"o{place}") in _LITERALS]

    def _readings(self, expression: Expression) -> list[FormVocabulary]:
        """A vocabulary for each choice of what shared labels mean."""
        leaves = list(dict.fromkeys(_leaves(expression)))
        choices = [self.names.nodes(leaf) for leaf in leaves]
        # A literal that the graph lacks is compared as it is written.
        meant = [(leaf, ids) for leaf, ids in zip(leaves, choices, strict=True) if ids]
        readings = islice(product(*(ids for _, ids in meant)), _MAX_READINGS + 1)
        chosen = [dict(zip((leaf for leaf, _ in meant), ids, strict=True)) for ids in readings]
        if len(chosen) > _MAX_READINGS:
            shared = ", ".join(quote(_name(leaf)) for leaf, ids in meant if len(ids) > 1)
            message = (
                f"more than {_MAX_READINGS} readings, since several entities are named {shared}: use ids"
            )
            raise Unanswered(failure(ErrorKind.QUERY_REFUSED, message))
        return [self._vocabulary(ids) for ids in chosen]

    def _vocabulary(self, ids: Mapping[Entity | Literal | Class, str]) -> FormVocabulary:
        def entity(leaf: Entity | Class) -> str:
            term = self.store.entity_term(ids[leaf])
            if term.startswith("_:"):
                message = f"{quote(_name(leaf))} has no name that a query can use: use what led to it"
                raise Unanswered(failure(ErrorKind.QUERY_REFUSED, message))
            return term

        def literal(value: Literal) -> str:
            return self.store.entity_term(ids[value]) if value in ids else literal_term(value)

        def relation(name: str) -> str:
            # The other end of TC's interval need not be there.
            found = self.names.relations(name) or (next(iter(_spellings(name))),)
            terms = [self.store.relation_term(id_) for id_ in found]
            return terms[0] if len(terms) == 1 else f"({'|'.join(terms)})"

        return FormVocabulary(
            entity=lambda id_: entity(Entity(id_)),
            relation=relation,
            ontology_class=lambda name: entity(Class(name)),
            type_predicate=self._type_predicate(),
            literal=literal,
            now=self._now,
        )

    def _type_predicate(self) -> str:
        known = [id_ for id_ in sorted(TYPE_RELATIONS) if id_ in self.store.resolve_relation(id_)]
        terms = [self.store.relation_term(id_) for id_ in known or [_RDF_TYPE]]
        return terms[0] if len(terms) == 1 else f"({'|'.join(terms)})"

    def _items(self, terms: Sequence[Mapping[str, str]]) -> dict[str, Item]:
        """Items of a query's terms, by id; the label of a literal is its value, of what has none its id."""
        ids = [self.store.id_of(term) for term in terms]
        labelled = self.store.items(list(dict.fromkeys(ids)))
        return {
            id_: labelled.get(id_) or Item(id_, term["value"] if term["type"] in _LITERALS else id_)
            for id_, term in zip(ids, terms, strict=True)
        }

    def _number(self, count: int) -> Item:
        id_ = self.store.id_of({"type": "literal", "value": f"{count}", "datatype": f"{XSD}integer"})
        return Item(id_, f"{count}")

    def _left(self) -> float:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise QueryTimeoutError(f"the expression was not evaluated within {self._deadline_s:g} s")
        return left_s


def _compiled(expression: Expression, vocabulary: FormVocabulary) -> str:
    try:
        return to_sparql(expression, vocabulary)
    except LogicalFormError as error:
        raise Unanswered(form_failure(error)) from error


def _leaves(expression: Expression) -> Iterator[Entity | Literal | Class]:
    """What the expression names beside relations; values to compare with are not among them."""
    match expression:
        case Class():
            yield expression
        case Join(_, Entity() | Literal() as leaf):
            yield leaf
        case And(left, right):
            yield from _leaves(left)
            yield from _leaves(right)
        case Join() | Superlative() | Timed() | Count():
            assert not isinstance(expression.source, Entity | Literal)
            yield from _leaves(expression.source)
        case Comparison():
            pass


def _name(leaf: Entity | Literal | Class) -> str:
    return leaf.id if isinstance(leaf, Entity) else leaf.name if isinstance(leaf, Class) else leaf.lexical


def _spellings(name: str) -> Iterator[str]:
    """Ids that a name may be short for."""
    yield name
    prefix, colon, local = name.partition(":")
    if colon and prefix in PREFIXES:
        yield PREFIXES[prefix] + local
    if "." in name and " " not in name:
        yield FREEBASE_NAMESPACE + name


def _first(resolve: Callable[[str], tuple[str, ...]], spellings: Iterator[str]) -> tuple[str, ...]:
    return next((ids for spelling in spellings if (ids := resolve(spelling))), ())

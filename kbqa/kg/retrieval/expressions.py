"""Evaluates logical forms over a graph: resolves their names, and finds their members.

Names are resolved as `kbqa.kg.forms` says. A label that several entities share stands for all of
them: the members are then the union over these entities, and for a superlative the extreme
members for each entity.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import NamedTuple

from kbqa.errors import LogicalFormError, QueryTimeoutError
from kbqa.kg.actions import ErrorKind, Failure, Item
from kbqa.kg.forms import NameTable, leaves
from kbqa.kg.handlers import Surroundings, failure, quote
from kbqa.kg.retrieval.execute_sparql import solve
from kbqa.kg.store import GraphStore
from kbqa.kg.values import written_as
from kbqa.logical_forms.algebra import XSD, Ask, Class, Count, Entity, Expression, Literal, relations
from kbqa.logical_forms.compiler import FREEBASE, Distinct, FormVocabulary, literal_term, to_sparql
from kbqa.logical_forms.s_expression import parse_s_expression

# Maximum readings of an expression with shared labels; each reading is a query.
_MAX_READINGS = 16
# Types of literals in SPARQL's JSON results; the second is Virtuoso's.
_LITERALS = ("literal", "typed-literal")


class Unanswered(Exception):
    """Raised if an expression cannot be answered; carries the failure out of a recursion."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(failure.message)


class Members(NamedTuple):
    """Members of an expression, sorted by label, then id, and whether there are more."""

    items: tuple[Item, ...]
    truncated: bool


def read_expression(text: str) -> Expression:
    """Parse an action's expression.

    Raises:
        Unanswered: the text is not an expression; details hold the `position` in characters from 1.
    """
    try:
        return parse_s_expression(text)
    except LogicalFormError as error:
        raise Unanswered(form_failure(error)) from error


def form_failure(error: LogicalFormError) -> Failure:
    where = None if error.position is None else {"position": error.position}
    return failure(ErrorKind.QUERY_SYNTAX, str(error), where)


def number(store: GraphStore, count: int) -> Item:
    """A number of members as an item."""
    return _value(store, f"{count}", "integer")


def truth(store: GraphStore, holds: bool) -> Item:
    """The answer to ASK as an item."""
    return _value(store, f"{holds}".lower(), "boolean")


def _value(store: GraphStore, lexical: str, datatype: str) -> Item:
    return Item(store.id_of({"type": "literal", "value": lexical, "datatype": XSD + datatype}), lexical)


class FormEvaluation:
    """Evaluates expressions over one graph, all within one deadline.

    Args:
        now: the day that NOW means, `2015-08-10`.
        distinct: which nodes of an expression must differ.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        *,
        now: str = FREEBASE.now,
        distinct: Distinct = Distinct.ANSWER,
    ) -> None:
        self.store, self.names = surroundings.store, NameTable(surroundings.store)
        self._distinct = distinct
        self._now, self._until = now, time.monotonic() + surroundings.deadline_s
        self._deadline_s = surroundings.deadline_s

    def check(self, expression: Expression) -> None:
        """Check that the graph has all names in the expression; literals may be missing.

        Raises:
            Unanswered: a name is not in the graph; reports the first.
        """
        self.check_nodes(expression)
        for name in relations(expression):
            if not self.names.relations(name):
                raise Unanswered(
                    failure(ErrorKind.INVALID_RELATION, f"Relation {quote(name)} not found in KG")
                )

    def check_nodes(self, expression: Expression) -> None:
        """Like `check`, but for entities and classes only."""
        for leaf in leaves(expression):
            if not isinstance(leaf, Literal) and not self.names.nodes(leaf):
                name = leaf.id if isinstance(leaf, Entity) else leaf.name
                raise Unanswered(failure(ErrorKind.ENTITY_NOT_IN_KG, f"Entity {quote(name)} not found in KG"))

    def members(self, expression: Expression, *, limit: int | None = None) -> Members:
        """All members, or at most `limit` of them; for ASK, true or false as the only one.

        All names must be in the graph, see `check`.

        Raises:
            Unanswered: the expression cannot be compiled, or its shared labels have too many readings.
            QueryError, GraphUnavailableError: as `GraphStore.query`.
        """
        readings = self._readings(expression)
        if isinstance(expression, Count) and len(readings) > 1:
            counted = self.members(expression.source)
            return Members((number(self.store, len(counted.items)),), counted.truncated)
        if isinstance(expression, Ask):
            asked = (self._compiled(expression, vocabulary) for vocabulary in readings)
            answers = (solve(self.store, query, deadline_s=self._left()).boolean for query in asked)
            return Members((truth(self.store, any(answers)),), False)
        found: dict[str, Item] = {}
        truncated = False
        for vocabulary in readings:
            query = self._compiled(expression, vocabulary)
            if limit is not None:
                # One extra row shows whether there are more.
                query += f"\nLIMIT {limit + 1}"
            solutions = solve(self.store, query, deadline_s=self._left())
            truncated = truncated or solutions.truncated
            terms = [row["x"] for row in solutions.bindings if "x" in row]
            found |= self._items(terms)
        items = sorted(found.values(), key=lambda item: (item.label, item.id))
        return Members(tuple(items[:limit]), truncated or len(items) > len(items[:limit]))

    def queries(self, expression: Expression) -> list[str]:
        """The queries that return the members as `?x`, one for each reading of shared labels.

        Raises:
            Unanswered: as `members`.
        """
        return [self._compiled(expression, vocabulary) for vocabulary in self._readings(expression)]

    def count(self, expression: Expression) -> int:
        """The number of members; a lower bound if several entities share a label.

        Raises: as `members`.
        """
        if isinstance(expression, Count | Ask):
            return 1
        [number] = self.members(Count(expression)).items
        return int(number.label)

    def literal_valued(self, candidates: Sequence[Item]) -> list[Item]:
        """The candidate relations that have literal values, judged by one value of each.

        Raises:
            QueryError, GraphUnavailableError: as `GraphStore.query`.
        """
        parts = [
            f"{{ SELECT (?o AS ?o{place}) WHERE {{ ?s {self.store.relation_term(item.id)} ?o }} LIMIT 1 }}"
            for place, item in enumerate(candidates)
        ]
        query = f"SELECT * WHERE {{ {' UNION '.join(parts)} }}"
        solutions = solve(self.store, query, deadline_s=self._left())
        terms = {name: term for row in solutions.bindings for name, term in row.items()}
        found = [(item, terms.get(f"o{place}")) for place, item in enumerate(candidates)]
        return [item for item, term in found if term is not None and self._is_value(item, term)]

    def _is_value(self, relation: Item, term: Mapping[str, str]) -> bool:
        """Whether a relation leads to literals, or to names that are written like numbers or dates."""
        # One name shows most relations that lead to others; to judge a relation takes a query.
        is_written = written_as([self.store.id_of(term)]) is not None
        return term["type"] in _LITERALS or (is_written and self.names.written_as(relation.id) is not None)

    def _compiled(self, expression: Expression, vocabulary: FormVocabulary) -> str:
        try:
            return to_sparql(expression, vocabulary, distinct=self._distinct)
        except LogicalFormError as error:
            raise Unanswered(form_failure(error)) from error

    def _readings(self, expression: Expression) -> list[FormVocabulary]:
        """One vocabulary for each combination of meanings of shared labels."""
        choices = [(leaf, self.names.nodes(leaf)) for leaf in dict.fromkeys(leaves(expression))]
        # A literal that is not in the graph is compared as written.
        meant = [(leaf, ids) for leaf, ids in choices if ids]
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

        return FormVocabulary(
            entity=lambda id_: entity(Entity(id_)),
            relation=self.names.relation_path,
            ontology_class=lambda name: entity(Class(name)),
            type_predicate=self.names.type_path(),
            literal=literal,
            value=self.names.value,
            now=self._now,
        )

    def _items(self, terms: Sequence[Mapping[str, str]]) -> dict[str, Item]:
        """Items of a query's terms by id; a literal's label is its value, a nameless node's its id."""
        ids = [self.store.id_of(term) for term in terms]
        labelled = self.store.items(list(dict.fromkeys(ids)))
        return {
            id_: labelled.get(id_) or Item(id_, term["value"] if term["type"] in _LITERALS else id_)
            for id_, term in zip(ids, terms, strict=True)
        }

    def _left(self) -> float:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise QueryTimeoutError(f"the expression was not evaluated within {self._deadline_s:g} s")
        return left_s


def _name(leaf: Entity | Literal | Class) -> str:
    return leaf.id if isinstance(leaf, Entity) else leaf.name if isinstance(leaf, Class) else leaf.lexical

"""Compiles logical forms to SPARQL 1.1 text, for any engine.

The meaning is that of GrailQA's executor and gold queries: a superlative's extreme value
is taken over all candidates in a subquery, and every candidate with that value is an answer;
values are compared by their types; COUNT counts distinct members. A `FormVocabulary` turns
names into full terms, so that a query needs no prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from typing import TypeAlias
from urllib.parse import quote

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.algebra import (
    NOW,
    XSD,
    And,
    Ask,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Join,
    Literal,
    Path,
    Relation,
    Superlative,
    Timed,
    described,
    entities,
)

# A superlative writes its candidates twice, so each level of nesting doubles the text.
MAX_NESTED_SUPERLATIVES = 3

FREEBASE_NAMESPACE = "http://rdf.freebase.com/ns/"
# GrailQA's Freebase was loaded in this time zone; its dates and gold queries contain it.
_FREEBASE_ZONE = "-08:00"
_ZONED = frozenset(XSD + name for name in ("date", "gYear", "gYearMonth"))
_ZONE = re.compile(r"(Z|[+-]\d{2}:\d{2})$")

INTERVALS = (("from", "to"), ("from_date", "to_date"), ("start_date", "end_date"))


class Distinct(StrEnum):
    """Which nodes of a pattern must differ.

    `ANSWER`: an answer differs from all entities in the expression (GrailQA's executor, the
    gold queries of WebQSP and CWQ). `ENTITIES`: so does every node to which a JOIN leads (MetaQA's
    gold answers). `NODES`: all nodes differ from each other (GrailQA's gold queries).
    """

    NONE = "none"
    ANSWER = "answer"
    ENTITIES = "entities"
    NODES = "nodes"


def literal_term(literal: Literal) -> str:
    """The literal as a SPARQL term."""
    quoted = f'"{_escape(literal.lexical)}"'
    if literal.language is not None:
        return f"{quoted}@{literal.language}"
    return quoted if literal.datatype == XSD + "string" else f"{quoted}^^<{literal.datatype}>"


# A full SPARQL term, or several where a name stands for any of them.
Terms: TypeAlias = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FormVocabulary:
    """Writes the names of a graph in SPARQL.

    Attributes:
        relation: a full term or a property path; so is `type_predicate`.
        type_predicate: links a member to its class.
        literal: the first of several terms is the value of a comparison.
        value: what is compared at a variable to which a relation leads: an expression that converts a text,
            or the variable itself.
        now: the day that TC's NOW means, such as `2015-08-10`.
    """

    entity: Callable[[str], Terms]
    relation: Callable[[str], str]
    ontology_class: Callable[[str], Terms]
    type_predicate: str
    literal: Callable[[Literal], Terms] = literal_term
    value: Callable[[str, str], str] = lambda relation, variable: variable
    now: str = "2015-08-10"


def _freebase_term(name: str) -> str:
    return f"<{FREEBASE_NAMESPACE}{quote(name, safe='./:-_~')}>"


def in_freebase_zone(literal: Literal) -> Literal:
    """A date with Freebase's time zone, unless it has one; any other literal unchanged."""
    if literal.datatype in _ZONED and not _ZONE.search(literal.lexical[4:]):
        return Literal(literal.lexical + _FREEBASE_ZONE, literal.datatype)
    return literal


# NOW is the day of Freebase's last dump, as in the gold queries of WebQSP.
FREEBASE = FormVocabulary(
    entity=_freebase_term,
    relation=_freebase_term,
    ontology_class=_freebase_term,
    type_predicate=_freebase_term("type.object.type"),
    literal=lambda literal: literal_term(in_freebase_zone(literal)),
    now="2015-08-10",
)


def to_sparql(
    expression: Expression,
    vocabulary: FormVocabulary = FREEBASE,
    *,
    distinct: Distinct = Distinct.ANSWER,
    answer: str = "x",
    apart: Iterable[str] = (),
) -> str:
    """A SELECT query whose distinct values of `?answer` are the members of `expression`; for ASK, an ASK.

    Args:
        apart: further entities from which nodes differ by `Distinct.ENTITIES`.

    Raises:
        LogicalFormError: superlatives nest deeper than `MAX_NESTED_SUPERLATIVES`, TC's
            relation belongs to no known pair, ASK is part of an expression, or `answer` is not a
            variable name.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", answer):
        raise LogicalFormError(f'"{answer}" is not a variable name; write for instance x')
    if _nested_superlatives(expression) > MAX_NESTED_SUPERLATIVES:
        raise LogicalFormError(f"ARGMAX and ARGMIN nest at most {MAX_NESTED_SUPERLATIVES} deep")
    named = dict.fromkeys((*entities(described(expression)), *apart)) if distinct is Distinct.ENTITIES else ()
    away = [term for name in named for term in _each(vocabulary.entity(name))]
    writer = _Writer(vocabulary, distinct, answer, away)
    if isinstance(expression, Count):
        return writer.count(expression, f"?{answer}")
    if isinstance(expression, Ask):
        return writer.ask(expression, f"?{answer}")
    return _select(f"DISTINCT ?{answer}", writer.group(expression, f"?{answer}"))


@dataclass(slots=True)
class _Group:
    """The nodes of one group graph pattern; the described node comes first."""

    variables: list[str]
    entities: list[str] = field(default_factory=list)
    literals: list[str] = field(default_factory=list)


class _Writer:
    def __init__(
        self, vocabulary: FormVocabulary, distinct: Distinct, answer: str, apart: Sequence[str]
    ) -> None:
        self._vocabulary, self._distinct, self._answer = vocabulary, distinct, answer
        self._apart = apart
        self._variables = 0

    def group(self, expression: Expression, variable: str) -> list[str]:
        """The pattern that binds `variable` to the members, with the filters for distinct nodes."""
        group = _Group([variable])
        lines = self._pattern(expression, variable, group)
        return lines + self._differences(group)

    def count(self, expression: Count, variable: str) -> str:
        member = self._fresh()
        return _select(f"(COUNT(DISTINCT {member}) AS {variable})", self.group(expression.source, member))

    def ask(self, expression: Ask, variable: str) -> str:
        match expression.node:
            case Entity(name):
                terms = self._vocabulary.entity(name)
            case literal:
                terms = self._vocabulary.literal(literal)
        values = f"VALUES {variable} {{ {' '.join(_each(terms))} }}"
        return "\n".join(
            ["ASK {", *(f"  {line}" for line in (values, *self.group(expression.source, variable))), "}"]
        )

    def _fresh(self) -> str:
        self._variables += 1
        return f"?{self._answer}{self._variables}"

    def _pattern(self, expression: Expression, variable: str, group: _Group) -> list[str]:
        match expression:
            case Class(name):
                values, term = self._any_of(self._vocabulary.ontology_class(name))
                return [*values, f"{variable} {self._vocabulary.type_predicate} {term} ."]
            case And(left, right):
                return self._pattern(left, variable, group) + self._pattern(right, variable, group)
            case Join(relation, source):
                return self._join(relation, source, variable, group)
            case Comparison(comparator, path, value):
                lines, end = self._along(path, variable, group)
                bound, *_ = _each(self._vocabulary.literal(value))
                return [*lines, f"FILTER ({self._value(path, end)} {comparator.symbol} {bound})"]
            case Superlative():
                return self._superlative(expression, variable, group)
            case Timed(source, relation, time):
                return self._pattern(source, variable, group) + self._timed(variable, relation.name, time)
            case Count():
                return _subquery(self.count(expression, variable))
            case Ask():
                raise LogicalFormError("ASK has no members: it is a whole expression")

    def _join(
        self, relation: Relation, source: Entity | Literal | Expression, variable: str, group: _Group
    ) -> list[str]:
        match source:
            case Entity(name):
                group.entities += _each(terms := self._vocabulary.entity(name))
                lines, term = self._any_of(terms)
                lines.append(self._edge(variable, relation, term))
            case Literal():
                group.literals += _each(terms := self._vocabulary.literal(source))
                lines, term = self._any_of(terms)
                lines.append(self._edge(variable, relation, term))
            case _:
                lines, member = self._along((relation,), variable, group)
                lines += self._pattern(source, member, group)
        return lines + away_from(variable, self._apart)

    def _any_of(self, terms: Terms) -> tuple[list[str], str]:
        """A term, or a variable and the lines that bind it to each of several terms."""
        first, *others = _each(terms)
        if not others:
            return [], first
        variable = self._fresh()
        return [f"VALUES {variable} {{ {' '.join((first, *others))} }}"], variable

    def _along(self, path: Path, variable: str, group: _Group) -> tuple[list[str], str]:
        """The edges of a path, and the variable at its end."""
        lines = []
        for relation in path:
            group.variables.append(following := self._fresh())
            lines.append(self._edge(variable, relation, following))
            variable = following
        return lines, variable

    def _edge(self, variable: str, relation: Relation, term: str) -> str:
        predicate = self._vocabulary.relation(relation.name)
        return f"{term} {predicate} {variable} ." if relation.inverse else f"{variable} {predicate} {term} ."

    def _superlative(self, superlative: Superlative, variable: str, group: _Group) -> list[str]:
        lines, end = self._along(superlative.path, variable, group)
        value = self._value(superlative.path, end)
        candidate = self._fresh()
        candidates = _Group([candidate])
        candidate_lines = self._pattern(superlative.source, candidate, candidates)
        value_lines, candidate_end = self._along(superlative.path, candidate, candidates)
        candidate_value = self._value(superlative.path, candidate_end)
        is_converted = value != end
        if is_converted:
            # What cannot be converted equals nothing; in the aggregate, it would be an error.
            value_lines.append(f"FILTER ({candidate_value} = {candidate_value})")
        # The candidates of an inner superlative are not answers yet.
        if variable == group.variables[0] or self._distinct is Distinct.NODES:
            value_lines += self._differences(candidates)
        best = self._fresh() if is_converted else value
        projection = f"({superlative.extreme}({candidate_value}) AS {best})"
        extreme = _subquery(_select(projection, candidate_lines + value_lines))
        chosen = [f"FILTER ({value} = {best})"] if is_converted else []
        return [*self._pattern(superlative.source, variable, group), *lines, *extreme, *chosen]

    def _value(self, path: Path, end: str) -> str:
        """What is compared at the end of a path."""
        *_, last = path
        return end if last.inverse else self._vocabulary.value(last.name, end)

    def _timed(self, variable: str, relation: str, time: str) -> list[str]:
        """Filters for intervals that cover `time`; a missing begin or end means an open interval.

        Dates are compared as text, which orders ISO dates of any precision and time zone
        on every engine: `2009-06-30` is not before `2009`, and is before `2009~`.
        """
        begin, end = map(self._vocabulary.relation, interval(relation))
        day = self._vocabulary.now if time == NOW else time
        return [
            self._open_or(variable, begin, f'< "{day}~"'),
            self._open_or(variable, end, f'>= "{day}"'),
        ]

    def _open_or(self, variable: str, predicate: str, condition: str) -> str:
        moment = self._fresh()
        edge = f"{variable} {predicate} {moment}"
        return f"FILTER (NOT EXISTS {{ {edge} }} || EXISTS {{ {edge} . FILTER (STR({moment}) {condition}) }})"

    def _differences(self, group: _Group) -> list[str]:
        constants = dict.fromkeys(group.entities)
        pairs: Iterable[tuple[str, str]] = ()
        if self._distinct is Distinct.ANSWER:
            pairs = [(group.variables[0], constant) for constant in constants]
        elif self._distinct is Distinct.NODES:
            constants |= dict.fromkeys(group.literals)
            nodes = [*group.variables, *constants]
            pairs = [pair for pair in combinations(nodes, 2) if pair[0].startswith("?")]
        return [f"FILTER ({one} != {other})" for one, other in pairs]


def away_from(variable: str, terms: Sequence[str]) -> list[str]:
    """The filter by which a variable differs from each of some terms; none if there are no terms."""
    # Comparing two literals by value may be an error, and Virtuoso refuses SAMETERM of a literal and a
    # subject. Comparing their texts is possible everywhere.
    tests = [
        f"(!ISLITERAL({variable}) || STR({variable}) != STR({term}))"
        if term.startswith('"')
        else f"{variable} != {term}"
        for term in terms
    ]
    return [f"FILTER ({' && '.join(tests)})"] if tests else []


def _each(terms: Terms) -> tuple[str, ...]:
    return (terms,) if isinstance(terms, str) else terms


def _select(projection: str, group: list[str]) -> str:
    return "\n".join([f"SELECT {projection} WHERE {{", *(f"  {line}" for line in group), "}"])


def _subquery(query: str) -> list[str]:
    return ["{", *(f"  {line}" for line in query.split("\n")), "}"]


def interval(relation: str) -> tuple[str, str]:
    """The relations that begin and end the interval to which `relation` belongs."""
    prefix, dot, ending = relation.rpartition(".")
    for pair in INTERVALS:
        if ending in pair:
            return prefix + dot + pair[0], prefix + dot + pair[1]
    known = ", ".join(f"{begin}/{end}" for begin, end in INTERVALS)
    raise LogicalFormError(f"TC's relation {relation} begins or ends no interval; known endings: {known}")


def _nested_superlatives(expression: Expression | Entity | Literal) -> int:
    match expression:
        case And(left, right):
            return max(_nested_superlatives(left), _nested_superlatives(right))
        case Superlative():
            return 1 + _nested_superlatives(expression.source)
        case Join() | Timed() | Count() | Ask():
            return _nested_superlatives(expression.source)
        case _:
            return 0


def _escape(text: str) -> str:
    """Escape text for a SPARQL string in double quotes."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return "".join(escapes.get(character, character) for character in text)

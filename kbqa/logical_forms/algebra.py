"""Logical forms as values: every expression denotes a set of nodes of a graph.

The operators are those of GrailQA (Gu et al. 2021, section 4) and KBQA-R1 (Table II):

    Class         all members of an ontology class
    Join          JOIN: nodes that a relation links to an entity, a literal or another set
    And           AND: intersection
    Superlative   ARGMAX, ARGMIN: the members whose value along a path of relations is extreme
    Comparison    le, lt, ge, gt: nodes whose value along a path satisfies a comparison with a literal
    Timed         TC: members that hold at a time, by the from/to pair of the relation
    Count         COUNT: the number of members
    Ask           ASK, of this project: whether a node is one of the members

Values are validated on creation, and an expression with more than `MAX_NODES` operators and
leaves is refused. Functions may therefore recurse over expressions, and an episode that
repeatedly merges an expression with itself ends in an error before it exhausts memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import date
from enum import StrEnum
from functools import cached_property
from operator import ge, gt, le, lt
from typing import TypeAlias

from kbqa.errors import LogicalFormError

XSD = "http://www.w3.org/2001/XMLSchema#"
MAX_NODES = 128

NOW = "NOW"
_TIME = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[^\s<>\"{}|\\^`()\[\]\x00-\x1f]+")
_LANGUAGE = re.compile(r"[A-Za-z]+(-[A-Za-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation, read from the described set to the set with which it is joined.

    Attributes:
        inverse: written `(R name)`: the described node is the triple's object instead of its subject.
    """

    name: str
    inverse: bool = False

    def __post_init__(self) -> None:
        _require_name(self.name, "relation")


Path: TypeAlias = tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity by the id that the graph uses."""

    id: str

    def __post_init__(self) -> None:
        _require_name(self.id, "entity")


@dataclass(frozen=True, slots=True)
class Literal:
    """An RDF literal; `datatype` is a full IRI, and ignored if there is a language."""

    lexical: str
    datatype: str = XSD + "string"
    language: str | None = None

    def __post_init__(self) -> None:
        if not _IRI.fullmatch(self.datatype) or self.datatype.startswith("xsd:"):
            raise LogicalFormError(
                f'"{self.datatype}" is not a datatype; write for instance 39^^{XSD}integer'
            )
        if self.language is not None and not _LANGUAGE.fullmatch(self.language):
            raise LogicalFormError(
                f'"{self.language}" is not a language tag; write for instance "Country"@en'
            )


class Extreme(StrEnum):
    MAX = "MAX"
    MIN = "MIN"


class Comparator(StrEnum):
    LE = "le"
    LT = "lt"
    GE = "ge"
    GT = "gt"

    @property
    def symbol(self) -> str:
        """The operator in SPARQL."""
        return {"le": "<=", "lt": "<", "ge": ">=", "gt": ">"}[self]

    def holds(self, one: float, other: float) -> bool:
        """Whether `one` is so compared to `other`."""
        holds: bool = {"le": le, "lt": lt, "ge": ge, "gt": gt}[self](one, other)
        return holds


class _Operator:
    """Base class with a size; has no slots, since the size is computed once and cached."""

    def __post_init__(self) -> None:
        if self.size > MAX_NODES:
            raise LogicalFormError(f"the expression has more than {MAX_NODES} operators and leaves")

    @cached_property
    def size(self) -> int:
        """The number of operators, relations and leaves."""
        return 1 + sum(part.size if isinstance(part, _Operator) else 1 for part in self._parts())

    def _parts(self) -> Iterator[object]:
        for field in fields(self):  # type: ignore[arg-type]  # every operator is a dataclass
            value = getattr(self, field.name)
            yield from value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True)
class Class(_Operator):
    name: str

    def __post_init__(self) -> None:
        _require_name(self.name, "class")


@dataclass(frozen=True)
class Join(_Operator):
    """`(JOIN relation source)`: all x with `x relation source`, or `source relation x` if inverse."""

    relation: Relation
    source: Entity | Literal | Expression

    def __post_init__(self) -> None:
        if isinstance(self.source, Class):
            raise LogicalFormError("JOIN takes an entity, a literal or an expression, not a bare class")
        super().__post_init__()


@dataclass(frozen=True)
class And(_Operator):
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Superlative(_Operator):
    """`(ARGMAX source path)`: all members that share the extreme value along `path`."""

    extreme: Extreme
    source: Expression
    path: Path

    def __post_init__(self) -> None:
        _require_path(self.path)
        super().__post_init__()


@dataclass(frozen=True)
class Comparison(_Operator):
    """`(le path value)`: all x that have a value along `path` less than or equal to `value`."""

    comparator: Comparator
    path: Path
    value: Literal

    def __post_init__(self) -> None:
        _require_path(self.path)
        super().__post_init__()


@dataclass(frozen=True)
class Timed(_Operator):
    """`(TC source relation time)`: members whose interval includes `time` or is open there.

    Attributes:
        relation: one of a pair for the begin and end of an interval, such as `….from` and `….to`.
        time: `NOW`, a year, a month `2009-05` or a day `2009-05-01`.
    """

    source: Expression
    relation: Relation
    time: str

    def __post_init__(self) -> None:
        if self.relation.inverse:
            raise LogicalFormError("TC takes a relation of the members themselves, not (R relation)")
        if self.time != NOW and not _is_time(self.time):
            raise LogicalFormError(f'"{self.time}" is not a time: write NOW, 2009, 2009-05 or 2009-05-01')
        super().__post_init__()


@dataclass(frozen=True)
class Count(_Operator):
    source: Expression


@dataclass(frozen=True)
class Ask(_Operator):
    """`(ASK source node)`: true if the node is a member of `source`, else false."""

    source: Expression
    node: Entity | Literal


Expression: TypeAlias = Class | Join | And | Superlative | Comparison | Timed | Count | Ask


def canonical(expression: Expression) -> Expression:
    """The representative of all expressions that differ only in order, grouping or repetition of AND.

    Operands of AND are flattened, deduplicated and sorted, then nested to the right. A class
    merged with itself stays an AND.
    """
    match expression:
        case And():
            *first, last = sorted(set(map(canonical, conjuncts(expression))), key=repr)
            if not first and isinstance(last, Class):
                return And(last, last)  # JOIN accepts this, but not a bare class
            for conjunct in reversed(first):
                last = And(conjunct, last)
            return last
        case Join(relation, source) if not isinstance(source, Entity | Literal):
            return Join(relation, canonical(source))
        case Superlative(extreme, source, path):
            return Superlative(extreme, canonical(source), path)
        case Timed(source, relation, time):
            return Timed(canonical(source), relation, time)
        case Count(source):
            return Count(canonical(source))
        case Ask(source, node):
            return Ask(canonical(source), node)
        case _:
            return expression


def equivalent(one: Expression, other: Expression) -> bool:
    """Whether both have the same canonical form, hence the same members in every graph."""
    return canonical(one) == canonical(other)


def entities(expression: Expression) -> tuple[str, ...]:
    """The distinct ids of the entities in an expression, in order."""
    return tuple(dict.fromkeys(leaf.id for leaf in _leaves(expression) if isinstance(leaf, Entity)))


def relations(expression: Expression) -> tuple[str, ...]:
    """The distinct names of the relations in an expression, in order."""
    return tuple(dict.fromkeys(leaf.name for leaf in _leaves(expression) if isinstance(leaf, Relation)))


def classes(expression: Expression) -> tuple[str, ...]:
    """The distinct names of the ontology classes in an expression, in order."""
    operators = _operators(expression)
    return tuple(dict.fromkeys(operator.name for operator in operators if isinstance(operator, Class)))


def renamed(
    expression: Expression, *, node: Callable[[str], str], relation: Callable[[str], str]
) -> Expression:
    """The expression with other names for its entities and classes, and for its relations."""

    def whole(part: Expression) -> Expression:
        return renamed(part, node=node, relation=relation)

    def step(link: Relation) -> Relation:
        return replace(link, name=relation(link.name))

    match expression:
        case Class(name):
            return Class(node(name))
        case Join(link, Entity(id_)):
            return Join(step(link), Entity(node(id_)))
        case Join(link, Literal() as literal):
            return Join(step(link), literal)
        case Join(link, source):
            assert not isinstance(source, Entity | Literal)
            return Join(step(link), whole(source))
        case And(left, right):
            return And(whole(left), whole(right))
        case Superlative(extreme, source, path):
            return Superlative(extreme, whole(source), tuple(map(step, path)))
        case Comparison(comparator, path, value):
            return Comparison(comparator, tuple(map(step, path)), value)
        case Timed(source, link, time):
            return Timed(whole(source), step(link), time)
        case Count(source):
            return Count(whole(source))
        case Ask(source, Entity(id_)):
            return Ask(whole(source), Entity(node(id_)))
        case Ask(source, literal):
            return Ask(whole(source), literal)


def described(expression: Expression) -> Expression:
    """The set that an expression is about: that of ASK, or the expression itself."""
    return expression.source if isinstance(expression, Ask) else expression


def conjuncts(expression: Expression) -> Iterator[Expression]:
    """The operands of nested ANDs, in order; of any other expression, itself."""
    if isinstance(expression, And):
        yield from conjuncts(expression.left)
        yield from conjuncts(expression.right)
    else:
        yield expression


def _leaves(operator: _Operator) -> Iterator[object]:
    for part in operator._parts():
        if isinstance(part, _Operator):
            yield from _leaves(part)
        else:
            yield part


def _operators(operator: _Operator) -> Iterator[_Operator]:
    yield operator
    for part in operator._parts():
        if isinstance(part, _Operator):
            yield from _operators(part)


def _require_name(name: str, kind: str) -> None:
    if not name.strip():
        raise LogicalFormError(f"the {kind} has no name")


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        date.fromisoformat(text + "-01-01"[len(text) - 4 :])
    except ValueError:
        return False
    return True


def _require_path(path: Path) -> None:
    if not path:
        raise LogicalFormError("a path needs at least one relation")

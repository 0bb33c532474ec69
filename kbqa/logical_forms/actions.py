"""KBQA-R1's six actions (Table II) as values, and logical forms as sequences of them.

    Find_relation [ m.0abc | film.actor.film ]       expression1
    Find_relation [ m.0xyz | film.director.film ]    expression2
    Merge [ expression1 | expression2 ]              expression3
    Merge [ film.film | expression3 ]                expression4
    Order [ MAX | expression4 | film.film.budget ]   expression5

The k-th action that succeeds makes `expression<k>`. `Find_relation` starts from an entity,
a typed literal or an expression; `Merge` and `Order` take an ontology class, too;
`Time_constraint` narrows the latest expression. Names are written as in S-expressions,
but may contain spaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.algebra import (
    And,
    Ask,
    Class,
    Comparator,
    Comparison,
    Count,
    Entity,
    Expression,
    Extreme,
    Join,
    Literal,
    Path,
    Relation,
    Superlative,
    Timed,
)
from kbqa.logical_forms.s_expression import (
    MAX_CHARS,
    parse_literal,
    parse_name,
    parse_path,
    parse_time,
    print_literal,
    print_path,
    quote_name,
)


@dataclass(frozen=True, slots=True)
class Reference:
    """`expression<number>`, numbered from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class FindRelation:
    """The nodes that `relation` links to a source. Without `(R …)`, the relation has no direction yet."""

    source: Entity | Literal | Reference
    relation: Relation


@dataclass(frozen=True, slots=True)
class Merge:
    left: Reference | Class
    right: Reference | Class


@dataclass(frozen=True, slots=True)
class Order:
    extreme: Extreme
    source: Reference | Class
    path: Path


@dataclass(frozen=True, slots=True)
class Compare:
    comparator: Comparator
    path: Path
    value: Literal


@dataclass(frozen=True, slots=True)
class TimeConstraint:
    relation: Relation
    time: str


@dataclass(frozen=True, slots=True)
class CountMembers:
    source: Reference


Action: TypeAlias = FindRelation | Merge | Order | Compare | TimeConstraint | CountMembers


def to_actions(expression: Expression) -> tuple[Action, ...]:
    """Actions that build an equivalent expression; relations keep their directions.

    Raises:
        LogicalFormError: there are no such actions, as for a bare class, or TC or COUNT of one.
    """
    actions: list[Action] = []
    reference = _unfold(expression, actions)
    if isinstance(reference, Class):
        raise LogicalFormError(f"no action gives the members of a bare class ({reference.name})")
    return tuple(actions)


def build(actions: Iterable[Action]) -> Expression:
    """The expression that the last of `actions` makes.

    Raises:
        LogicalFormError: there are no actions, or one refers to an expression that does not exist.
    """
    expressions: list[Expression] = []
    for action in actions:
        expressions.append(apply(action, expressions))
    if not expressions:
        raise LogicalFormError("there is no action")
    return expressions[-1]


def apply(action: Action, expressions: Sequence[Expression]) -> Expression:
    """The expression that `action` makes from the previous ones; the first of these is `expression1`.

    Raises:
        LogicalFormError: the action refers to an expression that does not exist, or the result is too large.
    """

    def resolve(source: Reference | Class) -> Expression:
        if isinstance(source, Class):
            return source
        if not 1 <= source.number <= len(expressions):
            have = f"the latest is expression{len(expressions)}" if expressions else "there is none yet"
            raise LogicalFormError(f"there is no expression{source.number}: {have}")
        return expressions[source.number - 1]

    match action:
        case FindRelation(source, relation):
            return Join(relation, resolve(source) if isinstance(source, Reference) else source)
        case Merge(left, right):
            return And(resolve(left), resolve(right))
        case Order(extreme, members, path):
            return Superlative(extreme, resolve(members), path)
        case Compare(comparator, path, value):
            return Comparison(comparator, path, value)
        case TimeConstraint(relation, time):
            return Timed(resolve(Reference(len(expressions) or 1)), relation, time)
        case CountMembers(reference):
            return Count(resolve(reference))


def print_action(action: Action) -> str:
    """Write an action as a line; `parse_action` reads the same action back."""
    match action:
        case FindRelation(source, relation):
            arguments = [_print_source(source), print_path((relation,))]
        case Merge(left, right):
            arguments = [_print_source(left), _print_source(right)]
        case Order(extreme, members, path):
            arguments = [extreme.value, _print_source(members), print_path(path)]
        case Compare(comparator, path, value):
            arguments = [comparator.value, print_path(path), print_literal(value)]
        case TimeConstraint(relation, time):
            arguments = [print_path((relation,)), time]
        case CountMembers(reference):
            arguments = [_print_source(reference)]
    return f"{_NAME_OF[type(action)]} [ {' | '.join(arguments)} ]"


# A piece is a quoted name or string, in which separators do not count, or a single character.
_PIECE = r'(?: ` (?: [^`\\] | \\. )++ ` | " (?: [^"\\] | \\. )*+ " | [^|\]] )'
_ARGUMENT = re.compile(rf"{_PIECE}*+", re.VERBOSE | re.DOTALL)
_LINE = re.compile(r"\s*(?:Action\s*\d+\s*:)?\s*(?P<name>\w+)\s*\[", re.IGNORECASE)
_REFERENCE = re.compile(r"expression([0-9]{1,6})", re.IGNORECASE)
_REVERSED = re.compile(r"\(\s*R\s+(?P<name>[^()`]+?|`(?:[^`\\]|\\.)+`)\s*\)", re.DOTALL)
_MARKUP = re.compile(r'[|\[\]()`"\\\n\r]|\^\^')


def parse_action(line: str) -> Action:
    """Read a line `Name [ argument | … ]`, in upper or lower case, optionally after `Action3:`.

    Raises:
        LogicalFormError: the line is not an action; the message says what the action takes.
    """
    if len(line) > MAX_CHARS:
        raise LogicalFormError(f"an action has at most {MAX_CHARS} characters")
    opening = _LINE.match(line)
    if opening is None:
        raise LogicalFormError("an action is written Name [ argument | argument ]")
    kind = _KINDS.get(opening["name"].lower())
    if kind is None:
        known = ", ".join(_NAME_OF.values())
        raise LogicalFormError(f"no action {opening['name'][:40]}; there are {known}")
    arguments = _split(line, opening.end())
    if arguments is None or len(arguments) != len(kind.arguments) or not all(arguments):
        raise LogicalFormError(f"write {kind.name} [ {' | '.join(kind.arguments)} ]")
    return kind.read(*arguments)


def _unfold(expression: Expression, actions: list[Action]) -> Reference | Class:
    """Append the actions that make `expression`, and return the reference to it."""

    def members(source: Expression, operator: str) -> Reference:
        reference = _unfold(source, actions)
        if isinstance(reference, Class):
            raise LogicalFormError(f"no action applies {operator} to a bare class ({reference.name})")
        return reference

    match expression:
        case Class():
            return expression
        case Join(relation, source):
            start = source if isinstance(source, Entity | Literal) else members(source, "JOIN")
            actions.append(FindRelation(start, relation))
        case And(left, right):
            first, second = _unfold(left, actions), _unfold(right, actions)
            actions.append(Merge(first, second))
        case Superlative(extreme, source, path):
            actions.append(Order(extreme, _unfold(source, actions), path))
        case Comparison(comparator, path, value):
            actions.append(Compare(comparator, path, value))
        case Timed(source, relation, time):
            members(source, "TC")  # its last action has just made the latest expression
            actions.append(TimeConstraint(relation, time))
        case Count(source):
            actions.append(CountMembers(members(source, "COUNT")))
        case Ask():
            raise LogicalFormError("no action says whether a node is a member")
    return Reference(len(actions))


def _print_source(source: Entity | Literal | Reference | Class) -> str:
    match source:
        case Reference(number):
            return f"expression{number}"
        case Literal():
            return print_literal(source)
        case Entity(name) | Class(name):
            plain = name == name.strip() and not _MARKUP.search(name) and not _REFERENCE.fullmatch(name)
            return name if plain else quote_name(name)


def _split(line: str, start: int) -> list[str] | None:
    """The arguments from `start` up to the closing bracket; None if there is no such bracket."""
    arguments = []
    while start <= len(line):
        found = _ARGUMENT.match(line, start)
        assert found is not None, "an argument may be empty"
        arguments.append(found.group().strip())
        if line[found.end() : found.end() + 1] == "]":
            return arguments
        start = found.end() + 1
    return None


def _members(argument: str) -> Reference | Class:
    found = _REFERENCE.fullmatch(argument)
    return Reference(int(found[1])) if found else Class(parse_name(argument))


def _reference(argument: str) -> Reference:
    if found := _REFERENCE.fullmatch(argument):
        return Reference(int(found[1]))
    raise LogicalFormError(f"{argument[:40]} is not an expression; write for instance expression1")


def _start(argument: str) -> Entity | Literal | Reference:
    if found := _REFERENCE.fullmatch(argument):
        return Reference(int(found[1]))
    if argument.startswith('"') or ("^^" in argument and not argument.startswith("`")):
        return parse_literal(argument)
    return Entity(parse_name(argument))


def _relation(argument: str) -> Relation:
    path = _path(argument)
    if len(path) > 1:
        raise LogicalFormError("one relation at a time; follow the next with another Find_relation")
    return path[0]


def _path(argument: str) -> Path:
    if found := _REVERSED.fullmatch(argument):
        return (Relation(parse_name(found["name"]), inverse=True),)
    return parse_path(argument) if argument.startswith("(") else (Relation(parse_name(argument)),)


def _extreme(argument: str) -> Extreme:
    try:
        return Extreme(argument.upper().removeprefix("ARG"))
    except ValueError:
        raise LogicalFormError(f"Order takes MAX or MIN, not {argument[:40]}") from None


def _comparator(argument: str) -> Comparator:
    try:
        return Comparator(argument.lower())
    except ValueError:
        raise LogicalFormError(f"Compare takes le, lt, ge or gt, not {argument[:40]}") from None


@dataclass(frozen=True, slots=True)
class _Kind:
    """The syntax of an action: its name, the names of its arguments, and how they are read."""

    name: str
    action: type[Action]
    arguments: tuple[str, ...]
    read: Callable[..., Action]


_ALL = (
    _Kind(
        "Find_relation",
        FindRelation,
        ("entity", "relation"),
        lambda source, relation: FindRelation(_start(source), _relation(relation)),
    ),
    _Kind(
        "Merge",
        Merge,
        ("expression1", "expression"),
        lambda left, right: Merge(_members(left), _members(right)),
    ),
    _Kind(
        "Order",
        Order,
        ("MAX/MIN", "expression", "relation"),
        lambda mode, source, path: Order(_extreme(mode), _members(source), _path(path)),
    ),
    _Kind(
        "Compare",
        Compare,
        ("le/lt/ge/gt", "relation", "number"),
        lambda mode, path, value: Compare(_comparator(mode), _path(path), parse_literal(value)),
    ),
    _Kind(
        "Time_constraint",
        TimeConstraint,
        ("relation", "time"),
        lambda relation, time: TimeConstraint(_relation(relation), parse_time(time)),
    ),
    _Kind("Count", CountMembers, ("expression",), lambda source: CountMembers(_reference(source))),
)
_KINDS = {kind.name.lower(): kind for kind in _ALL}
_NAME_OF = {kind.action: kind.name for kind in _ALL}

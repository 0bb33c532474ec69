"""Reads and writes the S-expressions of GrailQA and KBQA-R1.

    (AND film.film (JOIN (R film.actor.film) m.0abc))
    (ARGMAX film.film (JOIN film.film.rating film.rating.value))
    (TC (JOIN sports.roster.player m.0abc) sports.roster.from NOW)
    (le meteorite.mass 2.3e+06^^http://www.w3.org/2001/XMLSchema#float)

The position of a name determines its kind: the second argument of JOIN is an entity, any
other name in the place of a set is a class. A literal has a datatype (`39^^IRI`) or quotes
(`"Country"@en`, `"a b"^^IRI`); where only a literal is allowed, the type of a bare value
follows from its form. A name that would not be read back unchanged is written in backticks
(`` `Tom Hanks` ``), with `\\` before a backtick or backslash, and `\\n` for a line end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.algebra import (
    MAX_NODES,
    NOW,
    XSD,
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

# Far above what people and models write, and low enough that every text is read quickly.
MAX_CHARS = 8_192

_TOKEN = re.compile(
    r"""
    (?P<space>  \s++ )
  | (?P<open>   \( )
  | (?P<close>  \) )
  | (?P<name>   ` (?: [^`\\] | \\. )++ ` )
  | (?P<string> " (?: [^"\\] | \\. )*+ " (?: @[A-Za-z0-9-]++ | \^\^ [^\s()`"]++ )? )
  | (?P<atom>   [^\s()`"]++ )
  | (?P<other>  . )
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"`(?:[^`\\]|\\.)+`", re.DOTALL)
_STRING = re.compile(r'"(?P<lexical>.*)"(?:@(?P<language>[^"]+)|\^\^(?P<datatype>[^"]+))?', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE = re.compile(r'[`"\\\n\r]')
_LINE_ENDS = {"n": "\n", "r": "\r"}
_BARE = re.compile(r'[^\s()`"\\|\[\]]+')  # also excludes the separators of actions

# The datatype of a bare value by its form. Float rather than double or decimal, since in a
# graph that stores floats, 0.001 does not equal a double's 0.001.
_LOOKS = (
    (re.compile(r"[+-]?[0-9]+"), "integer"),
    (re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?"), "float"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})?"), "dateTime"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})?"), "date"),
    (re.compile(r"[0-9]{4}-[0-9]{2}"), "gYearMonth"),
)
_SUPERLATIVES = {"ARGMAX": Extreme.MAX, "ARGMIN": Extreme.MIN}
_TIME = re.compile(r"([0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?)(?:T.*|Z|[+-][0-9]{2}:[0-9]{2})?")


def parse_s_expression(text: str) -> Expression:
    """Parse an expression; a bare class is allowed, a bare entity or literal is not.

    Raises:
        LogicalFormError: the text is not an expression; says where, and what was expected.
    """
    reader = _Reader.of(text)
    expression = _expression(reader)
    reader.end()
    return expression


def parse_path(text: str) -> Path:
    """Parse a relation, `r` or `(R r)`, or a composition of relations, `(JOIN (R r) s)`.

    Raises:
        LogicalFormError: the text is not a path.
    """
    reader = _Reader.of(text)
    path = _path(reader)
    reader.end()
    return path


def parse_literal(text: str) -> Literal:
    """Parse a literal, in the form that is used where only a literal is allowed.

    Raises:
        LogicalFormError: the text is not a literal.
    """
    reader = _Reader.of(text)
    literal = _literal(reader)
    reader.end()
    return literal


def parse_name(text: str) -> str:
    """Read a name, with or without backticks."""
    return _unescape(text[1:-1]) if _QUOTED.fullmatch(text) else text


def parse_time(text: str) -> str:
    """Read `NOW`, a year, a month or a day, also from a typed literal or a longer timestamp.

    Raises:
        LogicalFormError: the text is not a time.
    """
    lexical = parse_literal(text).lexical
    if lexical.upper() == NOW:
        return NOW
    if (found := _TIME.fullmatch(lexical)) is None:
        raise LogicalFormError(f'"{text}" is not a time: write NOW, 2009, 2009-05 or 2009-05-01')
    return found[1]


def print_s_expression(expression: Expression) -> str:
    """Write an expression as GrailQA does; `parse_s_expression` reads the same expression back."""
    match expression:
        case Class(name):
            return print_name(name)
        case Join(relation, source):
            return f"(JOIN {print_path((relation,))} {_print_source(source)})"
        case And(left, right):
            return f"(AND {print_s_expression(left)} {print_s_expression(right)})"
        case Superlative(extreme, source, path):
            return f"(ARG{extreme} {print_s_expression(source)} {print_path(path)})"
        case Comparison(comparator, path, value):
            return f"({comparator} {print_path(path)} {print_literal(value)})"
        case Timed(source, relation, time):
            return f"(TC {print_s_expression(source)} {print_path((relation,))} {time})"
        case Count(source):
            return f"(COUNT {print_s_expression(source)})"
        case Ask(source, node):
            return f"(ASK {print_s_expression(source)} {_print_source(node)})"


def print_path(path: Path) -> str:
    first, *rest = path
    name = print_name(first.name)
    written = f"(R {name})" if first.inverse else name
    return f"(JOIN {written} {print_path(tuple(rest))})" if rest else written


def print_literal(literal: Literal) -> str:
    lexical, datatype = literal.lexical, literal.datatype
    if literal.language is not None:
        return f'"{_escape(lexical)}"@{literal.language}'
    if datatype == XSD + "string":
        return f'"{_escape(lexical)}"'
    if _BARE.fullmatch(lexical) and "^" not in lexical:
        return f"{lexical}^^{datatype}"
    return f'"{_escape(lexical)}"^^{datatype}'


def print_name(name: str) -> str:
    """Write a name, in backticks unless it is one atom that would be read back unchanged."""
    return name if _BARE.fullmatch(name) and "^^" not in name else quote_name(name)


def quote_name(name: str) -> str:
    return f"`{_escape(name)}`"


def _escape(text: str) -> str:
    """Escape text for quotes or backticks; includes line ends, since an action is one line."""
    letters = {end: letter for letter, end in _LINE_ENDS.items()}
    return _TO_ESCAPE.sub(lambda found: "\\" + letters.get(found[0], found[0]), text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _LINE_ENDS.get(found[1], found[1]), text)


def _print_source(source: Entity | Literal | Expression) -> str:
    if isinstance(source, Entity):
        return print_name(source.id)
    return print_literal(source) if isinstance(source, Literal) else print_s_expression(source)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def name(self) -> str | None:
        """The token as a name, without backticks; None if it is not a name."""
        if self.kind == "name":
            return parse_name(self.text)
        return self.text if self.kind == "atom" and "^^" not in self.text else None


class _Reader:
    """Reads the tokens of a text one by one."""

    def __init__(self, tokens: list[_Token], end: int) -> None:
        self._tokens, self._end, self._next = tokens, end, 0
        self._depth = 0

    @classmethod
    def of(cls, text: str) -> _Reader:
        if len(text) > MAX_CHARS:
            raise LogicalFormError(f"a logical form has at most {MAX_CHARS} characters")
        tokens = [
            _Token(found.lastgroup or "other", found.group(), found.start() + 1)
            for found in _TOKEN.finditer(text)
            if found.lastgroup != "space"
        ]
        return cls(tokens, len(text) + 1)

    @property
    def position(self) -> int:
        return self._tokens[self._next].position if self._next < len(self._tokens) else self._end

    def peek(self) -> _Token:
        if self._next == len(self._tokens):
            raise LogicalFormError("the expression ends too early", self._end)
        return self._tokens[self._next]

    def take(self, expected: str, *kinds: str) -> _Token:
        token = self.peek()
        if token.kind not in kinds:
            raise LogicalFormError(f"expected {expected}, found {token.text[:40]}", token.position)
        self._next += 1
        return token

    def name(self, expected: str) -> str:
        token = self.take(expected, "atom", "name")
        if token.name is None:
            raise LogicalFormError(f"expected {expected}, found a literal", token.position)
        return token.name

    def open(self) -> _Token:
        """Take an opening bracket and the operator after it."""
        opening = self.take("(", "open")
        self._depth += 1
        if self._depth > MAX_NODES:
            raise LogicalFormError(f"more than {MAX_NODES} brackets are open", opening.position)
        return self.take("an operator", "atom")

    def close(self) -> None:
        self.take(")", "close")
        self._depth -= 1

    def end(self) -> None:
        if self._next < len(self._tokens):
            raise LogicalFormError("the expression has ended before this", self.position)


def _expression(reader: _Reader) -> Expression:
    start = reader.peek()
    if start.kind != "open":
        return Class(reader.name("a class or an expression in brackets"))
    operator = reader.open()
    build = _OPERATORS.get(operator.text)
    if build is None:
        known = ", ".join(_OPERATORS)
        raise LogicalFormError(f"no operator {operator.text[:40]}; there are {known}", operator.position)
    try:
        expression = build(reader, operator.text)
    except LogicalFormError as error:
        if error.position is not None:
            raise
        raise LogicalFormError(error.reason, start.position) from None
    reader.close()
    return expression


def _join(reader: _Reader, _: str) -> Join:
    start = reader.position
    path = _path(reader)
    if len(path) > 1:
        raise LogicalFormError("JOIN takes one relation; nest JOINs for several", start)
    return Join(path[0], _source(reader))


def _source(reader: _Reader) -> Entity | Literal | Expression:
    return _expression(reader) if reader.peek().kind == "open" else _node(reader)


def _node(reader: _Reader) -> Entity | Literal:
    is_name = reader.peek().name is not None
    return Entity(reader.name("an entity")) if is_name else _literal(reader, "an entity or a literal")


def _superlative(reader: _Reader, operator: str) -> Superlative:
    return Superlative(_SUPERLATIVES[operator], _expression(reader), _path(reader))


def _comparison(reader: _Reader, operator: str) -> Comparison:
    return Comparison(Comparator(operator), _path(reader), _literal(reader))


def _timed(reader: _Reader, _: str) -> Timed:
    source = _expression(reader)
    relation = Relation(reader.name("a relation such as sports.sports_team_roster.from"))
    time = reader.take("a time", "atom", "string")
    return Timed(source, relation, parse_time(time.text))


def _ask(reader: _Reader, _: str) -> Ask:
    return Ask(_expression(reader), _node(reader))


def _path(reader: _Reader) -> Path:
    if reader.peek().kind != "open":
        return (Relation(reader.name("a relation")),)
    operator = reader.open()
    path: Path
    if operator.text == "R":
        path = (Relation(reader.name("a relation"), inverse=True),)
    elif operator.text == "JOIN":
        path = _path(reader) + _path(reader)
    else:
        raise LogicalFormError(
            "a relation is a name, (R name) or (JOIN relation relation)", operator.position
        )
    reader.close()
    return path


def _literal(reader: _Reader, expected: str = "a literal") -> Literal:
    token = reader.take(expected, "atom", "string")
    if token.kind == "atom":
        lexical, typed, datatype = token.text.partition("^^")
        return Literal(lexical, _datatype(datatype) if typed else _look(lexical))
    found = _STRING.fullmatch(token.text)
    assert found is not None, "the tokenizer's strings are strings"
    datatype = _datatype(found["datatype"]) if found["datatype"] else XSD + "string"
    return Literal(_unescape(found["lexical"]), datatype, found["language"])


def _look(lexical: str) -> str:
    return XSD + next((name for look, name in _LOOKS if look.fullmatch(lexical)), "string")


def _datatype(written: str) -> str:
    """The IRI of `<IRI>`, `xsd:name` or a bare IRI."""
    iri = written.removeprefix("<").removesuffix(">")
    return XSD + iri[4:] if iri.startswith("xsd:") else iri


_OPERATORS: dict[str, Callable[[_Reader, str], Expression]] = {
    "JOIN": _join,
    "AND": lambda reader, _: And(_expression(reader), _expression(reader)),
    "ARGMAX": _superlative,
    "ARGMIN": _superlative,
    "le": _comparison,
    "lt": _comparison,
    "ge": _comparison,
    "gt": _comparison,
    "TC": _timed,
    "COUNT": lambda reader, _: Count(_expression(reader)),
    "ASK": _ask,
}

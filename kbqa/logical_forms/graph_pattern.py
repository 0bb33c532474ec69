"""Splits a SELECT query into its triples and the text of its other constraints.

This reads just enough of SPARQL 1.1 to divide a query into sub-queries; it does not validate.
Tokens are kept as written, including prefixed names of Virtuoso's dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.sparql_tokens import Token, tokenize

# Far above gold queries; bounds the recursion over brackets and over chains of variables.
MAX_TOKENS = 2_000
MAX_DEPTH = 32

# Operators that the lexer splits, and that this reader joins again.
_OPERATORS = frozenset({"<=", ">=", "!=", "&&", "||"})
_MOST_PIECES = 5  # lexer tokens per token here: a string, two ^, its type, and the space after it
_CLOSING = {"{": "}", "(": ")", "[": "]"}
_AGGREGATES = frozenset({"COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"})


@dataclass(frozen=True, slots=True)
class Triple:
    """Terms as written; the predicate may be a property path."""

    subject: str
    predicate: str
    object: str

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.object} ."

    @property
    def variables(self) -> frozenset[str]:
        return frozenset(term for term in (self.subject, self.object) if is_variable(term))


@dataclass(frozen=True, slots=True)
class Constraint:
    """An element of a group other than a triple: its text, and all variables in it."""

    text: str
    variables: frozenset[str]


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """The parts of a query.

    Attributes:
        prologue: PREFIX and BASE declarations.
        prefixes: prefix → namespace.
        answer: the first variable in the projection, else in the triples; empty if there is none.
        aggregate: whether the projection has an aggregate such as COUNT.
        values: variable → term, for the variables that VALUES binds to a single term.
        modifiers: ORDER BY, LIMIT and so on; may be empty.
        inner: the subquery, if the group consists of nothing else.
    """

    prologue: str
    prefixes: dict[str, str]
    answer: str
    aggregate: bool
    triples: tuple[Triple, ...]
    constraints: tuple[Constraint, ...]
    values: dict[str, str]
    modifiers: str
    inner: SelectQuery | None

    def iri(self, term: str) -> str:
        """The full IRI of an entity term, without brackets; other terms unchanged."""
        if term.startswith("<"):
            return term[1:-1]
        prefix, colon, local = term.partition(":")
        if is_entity(term) and colon and prefix in self.prefixes:
            return self.prefixes[prefix] + local.replace("\\", "")
        return term


def is_variable(term: str) -> bool:
    return term[0] in "?$"


def is_entity(term: str) -> bool:
    """Whether a term is a full or prefixed IRI, and not a variable or literal."""
    return term[0] not in "?$\"'+-.0123456789" and term not in ("true", "false")


def parse_select(text: str) -> SelectQuery:
    """Split a SELECT query into its parts.

    Raises:
        LogicalFormError: the query has another form, is too large or too deeply nested, uses
            blank nodes in brackets, or is malformed.
    """
    reader = _Reader(_tokens(text))
    prefixes = {}
    while (keyword := reader.peek().upper()) in ("PREFIX", "BASE"):
        reader.take()
        name = reader.take().removesuffix(":") if keyword == "PREFIX" else None
        namespace = reader.take()
        if name is not None:
            prefixes[name] = namespace.strip("<>")
    prologue = reader.text(0)
    query = _select(reader, prologue, prefixes)
    if not reader.at_end:
        raise LogicalFormError(f"unexpected {reader.peek()} after the query")
    return query


def _tokens(text: str) -> list[str]:
    """Tokens without spaces; a literal includes its tag or type, a number its sign."""
    pieces = list(islice(tokenize(text), _MOST_PIECES * MAX_TOKENS + 1))
    tokens, at = list[str](), 0
    while at < len(pieces):
        kind, token, start = pieces[at]
        if kind == "quote":
            raise LogicalFormError("a string does not end", start + 1)
        length = _length(pieces[at : at + 4]) if kind in ("string", "other") else 1
        if kind != "space":
            tokens.append(token if length == 1 else "".join(p.text for p in pieces[at : at + length]))
        at += length
    if len(tokens) > MAX_TOKENS or len(pieces) > _MOST_PIECES * MAX_TOKENS:
        raise LogicalFormError(f"a query to be decomposed has at most {MAX_TOKENS} tokens")
    return tokens


def _length(pieces: Sequence[Token]) -> int:
    """The number of pieces in the token that begins with a string or a sign."""
    first, *rest = pieces
    texts, kinds = [piece.text for piece in rest], [piece.kind for piece in rest]
    if first.kind == "string":
        if kinds[:1] == ["tag"]:
            return 2
        return 4 if texts[:2] == ["^", "^"] and kinds[2:] in (["iri"], ["name"]) else 1
    if not rest:
        return 1
    signed = first.text in "+-" and kinds[0] == "number"
    return 2 if signed or first.text + texts[0] in _OPERATORS else 1


class _Reader:
    """Reads the tokens of a query one by one."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self.next = tokens, 0

    @property
    def at_end(self) -> bool:
        return self.next == len(self._tokens)

    def peek(self) -> str:
        """The next token, empty at the end."""
        return "" if self.at_end else self._tokens[self.next]

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token.upper() != expected):
            raise LogicalFormError(f"expected {expected or 'more'}, found {token or 'the end'}")
        self.next += 1
        return token

    def since(self, start: int) -> list[str]:
        """The tokens from `start` up to the next one."""
        return self._tokens[start : self.next]

    def text(self, start: int) -> str:
        return " ".join(self.since(start))

    def variables(self, start: int) -> frozenset[str]:
        return frozenset(filter(is_variable, self.since(start)))

    def skip_brackets(self) -> None:
        """Skip the bracket that opens here, including its content."""
        opening = self.take()
        if opening not in _CLOSING:
            raise LogicalFormError(f"expected a bracket, found {opening}")
        open_brackets = [_CLOSING[opening]]
        while open_brackets:
            token = self.take()
            if token in _CLOSING:
                open_brackets.append(_CLOSING[token])
            elif token in _CLOSING.values() and token != open_brackets.pop():
                raise LogicalFormError(f"{token} does not match the bracket that it closes")


def _select(reader: _Reader, prologue: str, prefixes: dict[str, str], depth: int = 0) -> SelectQuery:
    if depth > MAX_DEPTH:
        raise LogicalFormError(f"subqueries nest deeper than {MAX_DEPTH}")
    reader.take("SELECT")
    start = reader.next
    while reader.peek().upper() not in ("WHERE", "{"):
        reader.take()
    selected = reader.since(start)
    if reader.peek() != "{":
        reader.take("WHERE")
    group = _Group(prologue, prefixes, depth)
    group.read(reader)
    start = reader.next
    while not reader.at_end and reader.peek() != "}":
        if reader.peek() in _CLOSING:
            reader.skip_brackets()
        else:
            reader.take()
    variables = list(filter(is_variable, selected))
    variables += [term for triple in group.triples for term in sorted(triple.variables)]
    lone = not group.triples and len(group.constraints) == 1
    return SelectQuery(
        prologue=prologue,
        prefixes=prefixes,
        answer=variables[0] if variables else "",
        aggregate=any(token.upper() in _AGGREGATES for token in selected),
        triples=tuple(group.triples),
        constraints=tuple(group.constraints),
        values=group.values,
        modifiers=reader.text(start),
        inner=group.subquery if lone else None,
    )


class _Group:
    """The elements of one group graph pattern."""

    def __init__(self, prologue: str, prefixes: dict[str, str], depth: int) -> None:
        self._prologue, self._prefixes, self._depth = prologue, prefixes, depth
        self.triples: list[Triple] = []
        self.constraints: list[Constraint] = []
        self.values: dict[str, str] = {}
        self.subquery: SelectQuery | None = None

    def read(self, reader: _Reader) -> None:
        reader.take("{")
        if reader.peek().upper() == "SELECT":
            start = reader.next
            self.subquery = _select(reader, self._prologue, self._prefixes, self._depth + 1)
            self.constraints.append(Constraint(f"{{ {reader.text(start)} }}", reader.variables(start)))
        while reader.peek() != "}":
            self._element(reader)
        reader.take("}")

    def _element(self, reader: _Reader) -> None:
        start, keyword = reader.next, reader.peek().upper()
        match keyword:
            case ".":
                reader.take()
                return
            case "{":
                self._braces(reader)
            case "FILTER":
                self._filter(reader)
            case "VALUES":
                self._values(reader)
            case "OPTIONAL" | "MINUS" | "GRAPH" | "BIND":
                while reader.peek() not in ("{", "("):
                    reader.take()
                reader.skip_brackets()
            case _:
                self._triples(reader)
                return
        self.constraints.append(Constraint(reader.text(start), reader.variables(start)))

    def _braces(self, reader: _Reader) -> None:
        start = reader.next
        reader.skip_brackets()
        alternatives = 1
        while reader.peek().upper() == "UNION":
            reader.take()
            reader.skip_brackets()
            alternatives += 1
        inner = _Reader(reader.since(start)[1:-1])
        if alternatives == 1 and inner.peek().upper() == "SELECT":
            self.subquery = _select(inner, self._prologue, self._prefixes, self._depth + 1)

    def _filter(self, reader: _Reader) -> None:
        reader.take()
        while reader.peek() not in ("(", "{"):
            reader.take()
        reader.skip_brackets()

    def _values(self, reader: _Reader) -> None:
        reader.take()
        single = is_variable(reader.peek() or ".")
        variable = reader.take() if single else ""
        if not single:
            reader.skip_brackets()
        start = reader.next
        reader.skip_brackets()
        terms = reader.since(start)[1:-1]
        if single and len(terms) == 1:
            self.values[variable] = terms[0]

    def _triples(self, reader: _Reader) -> None:
        subject = _term(reader)
        while True:
            predicate = _predicate(reader)
            self.triples.append(Triple(subject, predicate, _term(reader)))
            while reader.peek() == ",":
                reader.take()
                self.triples.append(Triple(subject, predicate, _term(reader)))
            if reader.peek() != ";":
                return
            while reader.peek() == ";":
                reader.take()
            if reader.peek() in (".", "}"):
                return


def _term(reader: _Reader) -> str:
    token = reader.take()
    if token in "[](){}.;,":
        raise LogicalFormError(f"expected a term, found {token}")
    return token


def _predicate(reader: _Reader) -> str:
    """A predicate or property path as text."""
    start = reader.next
    while True:
        while reader.peek() in ("^", "!"):
            reader.take()
        if reader.peek() == "(":
            reader.skip_brackets()
        else:
            _term(reader)
        while reader.peek() in ("*", "+", "?"):
            reader.take()
        if reader.peek() not in ("/", "|"):
            return reader.text(start)
        reader.take()


def variables_of(triples: Iterable[Triple]) -> frozenset[str]:
    return frozenset().union(*(triple.variables for triple in triples))

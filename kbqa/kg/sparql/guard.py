"""SPARQL 1.1 queries as text: what may be executed, what form it has, how results are written.

A query is judged by its tokens before any engine sees it, since an engine would
follow a SERVICE to any host, and its parser can be crashed by nesting. Words in
strings, IRIs, prefixed names, variables and comments are not keywords.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from kbqa.errors import QueryRefusedError, QuerySyntaxError
from kbqa.logical_forms.sparql_tokens import Token, position, tokenize

QueryForm = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]

# Far above what people and models write; an engine's recursive parser dies at some
# thousands, and its optimiser is quadratic or worse in nested groups.
MAX_DEPTH = 64
MAX_QUERY_CHARS = 100_000
# Brackets and operators, the data of VALUES and the arguments of functions apart. They
# become chains in the algebra; five thousand exhaust the stack of an engine that recurses.
MAX_PARTS = 2_000

_FORMS: tuple[QueryForm, ...] = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_REFUSED = ("INSERT", "DELETE", "LOAD", "CLEAR", "CREATE", "DROP", "COPY", "MOVE", "ADD", "WITH", "USING")
_REFUSED_IN_QUERIES = ("SERVICE", "FROM")
# A graph here is one graph. Embedded, the clause would find nothing and look like an
# empty result; at an endpoint it would read what is not the graph that was asked.
_NAMED_GRAPH = "GRAPH"
# Two executions of a query with one of these may differ.
_VOLATILE = frozenset({"NOW", "RAND", "UUID", "STRUUID", "BNODE"})


class ResultFormat(StrEnum):
    """How a result is written; the value is the media type."""

    JSON = "application/sparql-results+json"
    XML = "application/sparql-results+xml"
    CSV = "text/csv"
    TSV = "text/tab-separated-values"
    NTRIPLES = "application/n-triples"
    TURTLE = "text/turtle"

    @property
    def is_graph(self) -> bool:
        """Whether it writes triples (CONSTRUCT, DESCRIBE), not rows or a boolean."""
        return self in (ResultFormat.NTRIPLES, ResultFormat.TURTLE)


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query that may be executed.

    Attributes:
        text: as it was written.
        form: its keyword.
        canonical: `text` without comments and with single spaces; equal only for queries
            that mean the same.
        volatile: whether two executions over the same graph may differ.
        tokens: of `text`. An engine is given what `dialect` makes of them.
    """

    text: str
    form: QueryForm
    canonical: str
    volatile: bool
    tokens: tuple[Token, ...] = field(repr=False, compare=False)

    @property
    def returns_graph(self) -> bool:
        return self.form in ("CONSTRUCT", "DESCRIBE")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A serialised result.

    Attributes:
        rows: rows or triples in `body`; 1 for ASK.
        truncated: whether more were found than the store's caps on rows and bytes allow.
    """

    body: bytes
    format: ResultFormat
    rows: int
    truncated: bool = False


def check_query(text: str) -> CheckedQuery:
    """Judge a query by its tokens; it is neither parsed nor executed.

    Raises:
        QuerySyntaxError: it has no query form at all.
        QueryRefusedError: an update, SERVICE, FROM or GRAPH, or too long, too deeply
            nested or of too many parts.
    """
    if len(text) > MAX_QUERY_CHARS:
        raise QueryRefusedError(f"the query is longer than {MAX_QUERY_CHARS} characters")
    form: QueryForm | None = None
    volatile = False
    tokens: list[Token] = []
    size = _Size()
    for token in tokenize(text):
        kind, value, start = token
        tokens.append(token)
        size.add(token)
        if kind == "quote":
            raise QuerySyntaxError(f"error at {position(text, start)}: a string that does not end")
        if kind == "word":
            word = value.upper()
            _refuse(word, (*_REFUSED, *_REFUSED_IN_QUERIES, _NAMED_GRAPH))
            volatile = volatile or word in _VOLATILE
            form = form or next((known for known in _FORMS if word.startswith(known)), None)
        elif kind == "name":
            # A parser that backtracks reads `SERVICE:x` as SERVICE and `:x`.
            _refuse(value.partition(":")[0].upper(), _REFUSED_IN_QUERIES)
        elif kind == "iri":
            # `?a<?b)SERVICE?x#>` is an IRI to a tokenizer and a comparison to a parser.
            _refuse(value.partition(")")[2].upper(), _REFUSED_IN_QUERIES)
    if form is None:
        raise QuerySyntaxError("no SELECT, ASK, CONSTRUCT or DESCRIBE in the query")
    canonical = "".join(" " if kind == "space" else value for kind, value, _ in tokens).strip()
    return CheckedQuery(text, form, canonical, volatile, tuple(tokens))


class _Size:
    """Counts what would exhaust the stack of a parser or optimiser that recurses, and refuses it."""

    def __init__(self) -> None:
        self._brackets: list[str] = []
        self._parts = 0
        self._values = False  # whether the next brace opens the data of VALUES
        self._data_depth = 0  # of the data that we are in, 0 for none

    def add(self, token: Token) -> None:
        kind, value, _ = token
        brackets = self._brackets
        if kind == "open":
            brackets.append(value)
            if len(brackets) > MAX_DEPTH:
                raise QueryRefusedError(f"the query nests deeper than {MAX_DEPTH} brackets")
            if self._values and value == "{":
                self._values, self._data_depth = False, len(brackets)
        elif kind == "close" and brackets:
            if self._data_depth == len(brackets):
                self._data_depth = 0
            brackets.pop()
        elif kind == "word" and value.upper() == "VALUES":
            self._values = True
        argument = value == "," and brackets[-1:] == ["("]
        if kind in ("open", "other") and not self._data_depth and not argument:
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise QueryRefusedError(
                    f"the query has more than {MAX_PARTS} brackets and operators:"
                    " give long lists by VALUES or IN"
                )


def _refuse(word: str, refused: tuple[str, ...]) -> None:
    # By containment: a parser may not insist on a space between two keywords
    # (SERVICESILENT), and no word of SPARQL queries contains one of these.
    for keyword in refused:
        if keyword in word:
            raise QueryRefusedError(
                f"{keyword} is refused: queries only read the graph that they are sent to"
            )

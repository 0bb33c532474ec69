"""Checks whether a SPARQL 1.1 query may be executed; also defines query forms and result formats.

A query is checked by its tokens before any engine sees it, since an engine would follow
a SERVICE to any host, and deep nesting can crash its parser. Words in strings, IRIs,
prefixed names, variables and comments are not keywords.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from kbqa.errors import QueryRefusedError, QuerySyntaxError
from kbqa.logical_forms.sparql_tokens import Token, position, tokenize

QueryForm = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]

# Far above what people and models write. An engine's recursive parser crashes at some
# thousands, and its optimiser is quadratic or worse in nested groups.
MAX_DEPTH = 64
MAX_QUERY_CHARS = 100_000
# Brackets and operators, not counting the data of VALUES and the arguments of functions.
# They become chains in the algebra; five thousand exhaust the stack of a recursive engine.
MAX_PARTS = 2_000

_FORMS: tuple[QueryForm, ...] = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_REFUSED = ("INSERT", "DELETE", "LOAD", "CLEAR", "CREATE", "DROP", "COPY", "MOVE", "ADD", "WITH", "USING")
_REFUSED_IN_QUERIES = ("SERVICE", "FROM")
_INSTEAD = {"SERVICE": "; instead of SERVICE wikibase:label, ask for rdfs:label"}
# A store holds one graph. In the embedded store, the clause would find nothing and look like
# an empty result; at an endpoint, it would read another graph than the requested one.
_NAMED_GRAPH = "GRAPH"
# Functions whose value may differ between two executions.
_VOLATILE = frozenset({"NOW", "RAND", "UUID", "STRUUID", "BNODE"})


class ResultFormat(StrEnum):
    """The format of a result; the value is the media type."""

    JSON = "application/sparql-results+json"
    XML = "application/sparql-results+xml"
    CSV = "text/csv"
    TSV = "text/tab-separated-values"
    NTRIPLES = "application/n-triples"
    TURTLE = "text/turtle"


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query that may be executed.

    Attributes:
        text: the query as written.
        form: the query's keyword.
        canonical: `text` without comments and with single spaces; equal only for queries
            with the same meaning.
        volatile: whether two executions over the same graph may differ.
        tokens: of `text`; `dialect` rewrites them for an engine.
    """

    text: str
    form: QueryForm
    canonical: str
    volatile: bool
    tokens: tuple[Token, ...] = field(repr=False, compare=False)

    @property
    def returns_graph(self) -> bool:
        return self.form in ("CONSTRUCT", "DESCRIBE")

    @property
    def default_format(self) -> ResultFormat:
        """The format of a result if none is asked for."""
        return ResultFormat.NTRIPLES if self.returns_graph else ResultFormat.JSON


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A serialised result.

    Attributes:
        rows: rows or triples in `body`; 1 for ASK.
        truncated: whether the store's limits on rows and bytes cut the result.
    """

    body: bytes
    format: ResultFormat
    rows: int
    truncated: bool = False


def check_query(text: str) -> CheckedQuery:
    """Check a query by its tokens, without parsing or executing it.

    Raises:
        QuerySyntaxError: the query has no query form, or a string that does not end.
        QueryRefusedError: the query contains an update, SERVICE, FROM or GRAPH, or is too
            long, too deeply nested or has too many parts.
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
    """Counts brackets and operators, and refuses queries that could exhaust a recursive parser's stack."""

    def __init__(self) -> None:
        self._brackets: list[str] = []
        self._parts = 0
        self._values = False  # whether the next brace opens the data of VALUES
        self._data_depth = 0  # bracket depth of the current VALUES data, 0 outside

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
                f"{_INSTEAD.get(keyword, '')}"
            )

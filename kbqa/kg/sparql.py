"""SPARQL 1.1 queries as text: what may be executed, what form it has, how results are written.

A query is judged by its tokens before any engine sees it, since an engine would
follow a SERVICE to any host, and its parser can be crashed by nesting. Words in
strings, IRIs, prefixed names, variables and comments are not keywords.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from kbqa.errors import QueryRefusedError, QuerySyntaxError

QueryForm = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]

# Far above what people and models write; an engine's recursive parser dies at some
# thousands, and its optimiser is quadratic or worse in nested groups.
MAX_DEPTH = 64
MAX_QUERY_CHARS = 100_000

_FORMS: tuple[QueryForm, ...] = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_REFUSED = ("INSERT", "DELETE", "LOAD", "CLEAR", "CREATE", "DROP", "COPY", "MOVE", "ADD", "WITH", "USING")
_REFUSED_IN_QUERIES = ("SERVICE", "FROM")
# Two executions of a query with one of these may differ.
_VOLATILE = frozenset({"NOW", "RAND", "UUID", "STRUUID", "BNODE"})

# In the order in which they are tried; possessive, so that no text makes it backtrack.
_TOKEN = re.compile(
    r"""
    (?P<space>    (?: \s | \#[^\n\r]* )++ )
  | (?P<iri>      < (?: [^<>"{}|^`\\\x00-\x20] | \\u[0-9A-Fa-f]{4} | \\U[0-9A-Fa-f]{8} )*+ > )
  | (?P<string>   \"\"\" (?: [^"\\] | \\. | \"(?!\"\") )*+ \"\"\" | ''' (?: [^'\\] | \\. | '(?!'') )*+ '''
                | "(?!"") (?: [^"\\\n\r] | \\. )*+ " | '(?!'') (?: [^'\\\n\r] | \\. )*+ ' )
  | (?P<quote>    ["'] )
  | (?P<variable> [?$]\w++ )
  | (?P<tag>      @[A-Za-z][A-Za-z0-9-]*+ )
  | (?P<name>     (?P<prefix> _ | (?: [^\W\d_] [\w.\-·]{0,200}+ )? ) :
                  (?: (?: [\w:·] | %[0-9A-Fa-f]{2} | \\[^\w\s] )
                      (?: [\w:\-·] | \.(?=[\w:.\-·%\\]) | %[0-9A-Fa-f]{2} | \\[^\w\s] )*+ )? )
  | (?P<number>   (?: \d++\.?\d*+ | \.\d++ ) (?: [eE][+-]?\d++ )? )
  | (?P<word>     [^\W\d_]\w*+ )
  | (?P<open>     [{(\[] )
  | (?P<close>    [})\]] )
  | (?P<other>    . )
    """,
    re.VERBOSE | re.DOTALL,
)


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
    """A query that may be handed to an engine.

    Attributes:
        text: as it was written, so that an error's position is right.
        form: its keyword.
        canonical: `text` without comments and with single spaces; equal only for queries
            that mean the same.
        volatile: whether two executions over the same graph may differ.
    """

    text: str
    form: QueryForm
    canonical: str
    volatile: bool

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
        QueryRefusedError: an update, SERVICE, FROM, or too long or too deeply nested.
    """
    if len(text) > MAX_QUERY_CHARS:
        raise QueryRefusedError(f"the query is longer than {MAX_QUERY_CHARS} characters")
    form: QueryForm | None = None
    depth, volatile = 0, False
    canonical: list[str] = []
    for token in _TOKEN.finditer(text):
        kind, value = token.lastgroup, token.group()
        canonical.append(" " if kind == "space" else value)
        if kind == "open":
            depth += 1
            if depth > MAX_DEPTH:
                raise QueryRefusedError(f"the query nests deeper than {MAX_DEPTH} brackets")
        elif kind == "close":
            depth -= 1
        elif kind == "quote":
            raise QuerySyntaxError(f"error at {_position(text, token.start())}: a string that does not end")
        elif kind == "word":
            word = value.upper()
            _refuse(word, (*_REFUSED, *_REFUSED_IN_QUERIES))
            volatile = volatile or word in _VOLATILE
            form = form or next((known for known in _FORMS if word.startswith(known)), None)
        elif kind == "name":
            # A parser that backtracks reads `SERVICE:x` as SERVICE and `:x`.
            _refuse(token["prefix"].upper(), _REFUSED_IN_QUERIES)
        elif kind == "iri":
            # `?a<?b)SERVICE?x#>` is an IRI to a tokenizer and a comparison to a parser.
            _refuse(value.partition(")")[2].upper(), _REFUSED_IN_QUERIES)
    if form is None:
        raise QuerySyntaxError("no SELECT, ASK, CONSTRUCT or DESCRIBE in the query")
    return CheckedQuery(text, form, "".join(canonical).strip(), volatile)


def _position(text: str, offset: int) -> str:
    """Line and column, both from 1, as the engine writes them."""
    line_start = text.rfind("\n", 0, offset) + 1
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - line_start + 1}"


def _refuse(word: str, refused: tuple[str, ...]) -> None:
    # By containment: a parser may not insist on a space between two keywords
    # (SERVICESILENT), and no word of SPARQL queries contains one of these.
    for keyword in refused:
        if keyword in word:
            raise QueryRefusedError(
                f"{keyword} is refused: queries only read the graph that they are sent to"
            )

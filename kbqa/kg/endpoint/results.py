"""Reads the answers of SPARQL servers leniently, and writes them like the embedded store does.

A strict parser would refuse Virtuoso's results: it writes `typed-literal`, answers ASK with a
row, names blank nodes `nodeID://b10` and contains invalid IRIs. An answer that was cut off
yields the rows that arrived completely.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyoxigraph as ox

from kbqa.errors import GraphUnavailableError, QueryError
from kbqa.kg.endpoint.client import EndpointAnswer
from kbqa.kg.sparql.guard import QueryForm, QueryResult, ResultFormat

# Virtuoso names a blank node by an IRI that later queries can use.
BLANK_IRI = "nodeID://"
_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"
_VIRTUOSO_ASK = "__ASK_RETVAL"

ROWS = ResultFormat.JSON.value
GRAPH = "application/n-triples, text/turtle;q=0.8"

_VARIABLES = re.compile(r'"vars"\s*:\s*(\[[^\]]*\])')
_BINDINGS = re.compile(r'"bindings"\s*:\s*\[')
_SEPARATOR = re.compile(r"[\s,]*")

_SERIALISED_ROWS = {
    ResultFormat.XML: ox.QueryResultsFormat.XML,
    ResultFormat.CSV: ox.QueryResultsFormat.CSV,
    ResultFormat.TSV: ox.QueryResultsFormat.TSV,
}
_SERIALISED_GRAPHS = {
    ResultFormat.NTRIPLES: ox.RdfFormat.N_TRIPLES,
    ResultFormat.TURTLE: ox.RdfFormat.TURTLE,
}

# Variable → its term, as SPARQL's JSON results write it.
Binding = dict[str, dict[str, str]]


class UnreadableError(ValueError):
    """The answer is not valid for a SPARQL server."""


@contextmanager
def readable(url: str) -> Iterator[None]:
    """Around reading what the endpoint at a URL answered: `GraphUnavailableError` if it is unreadable."""
    try:
        yield
    except UnreadableError as error:
        raise GraphUnavailableError(f"the SPARQL endpoint {url} {error}") from error


def read_bindings(answer: EndpointAnswer, max_rows: int) -> tuple[list[str], list[Binding], bool]:
    """(variables, rows, whether rows are missing).

    Raises:
        UnreadableError: the answer is not SPARQL results in JSON.
    """
    text = answer.body.decode("utf-8", "replace")
    try:
        variables, rows = _whole(text) if answer.complete else _part(text)
        bindings = [
            {name: _term(term) for name, term in row.items() if term is not None} for row in rows[:max_rows]
        ]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        start = " ".join(text[:80].split())
        raise UnreadableError(f'answered what is not SPARQL results: "{start}"') from error
    cut_there = answer.max_rows is not None and len(rows) >= answer.max_rows
    return variables, bindings, len(rows) > max_rows or not answer.complete or cut_there


def read_result(
    answer: EndpointAnswer, form: QueryForm, result: ResultFormat, *, max_rows: int
) -> QueryResult:
    """Read an answer as the result of a query of the given form.

    Raises:
        UnreadableError: the answer is not such a result.
        QueryError: the result format cannot represent a term.
    """
    if form in ("CONSTRUCT", "DESCRIBE"):
        return _graph(answer, result, max_rows)
    if form == "ASK":
        document: Any = {"head": {}, "boolean": _truth(answer)}
        body, rows, truncated = _dump(document), 1, False
    else:
        variables, bindings, truncated = read_bindings(answer, max_rows)
        document = {"head": {"vars": variables}, "results": {"bindings": bindings}}
        body, rows = _dump(document), len(bindings)
    if result in _SERIALISED_ROWS:
        body = _serialised(body, result)
    return QueryResult(body, result, rows, truncated)


def id_of(term: Mapping[str, str]) -> str:
    """The id of a term: an IRI, a literal in N-Triples form, or a blank node."""
    value = term["value"]
    if term["type"] == "uri":
        return value
    if term["type"] == "bnode":
        return value if value.startswith(BLANK_IRI) else f"_:{value}"
    datatype = term.get("datatype")
    return str(
        ox.Literal(
            value, datatype=ox.NamedNode(datatype) if datatype else None, language=term.get("xml:lang")
        )
    )


def _whole(text: str) -> tuple[list[str], list[dict[str, Any]]]:
    document = json.loads(text)
    variables, rows = document["head"]["vars"], document["results"]["bindings"]
    if not (isinstance(variables, list) and all(isinstance(name, str) for name in variables)):
        raise ValueError("vars")
    if not isinstance(rows, list):
        raise ValueError("bindings")
    return variables, rows


def _part(text: str) -> tuple[list[str], list[dict[str, Any]]]:
    variables, bindings = _VARIABLES.search(text), _BINDINGS.search(text)
    if variables is None or bindings is None:
        raise ValueError("vars")
    rows: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    position = bindings.end()
    while True:
        separator = _SEPARATOR.match(text, position)
        assert separator is not None
        try:
            row, position = decoder.raw_decode(text, separator.end())
        except ValueError:
            return json.loads(variables[1]), rows
        rows.append(row)


def _term(term: dict[str, Any]) -> dict[str, str]:
    kind, value = term["type"], term["value"]
    if kind == "typed-literal":
        kind = "literal"
    if kind == "triple" and isinstance(value, dict):
        return term
    if kind not in ("uri", "literal", "bnode") or not isinstance(value, str):
        raise ValueError(kind)
    read = {"type": kind, "value": value}
    if language := term.get("xml:lang"):
        read["xml:lang"] = str(language)
    elif (datatype := term.get("datatype")) and datatype != _XSD_STRING:
        read["datatype"] = str(datatype)
    return read


def _truth(answer: EndpointAnswer) -> bool:
    try:
        document = json.loads(answer.body)
        if "boolean" in document:
            return document["boolean"] is True
        rows = document["results"]["bindings"]
        return bool(rows) and rows[0][_VIRTUOSO_ASK]["value"] != "0"
    except (ValueError, TypeError, LookupError) as error:
        raise UnreadableError("answered an ASK with what is neither true nor false") from error


def _dump(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _serialised(body: bytes, result: ResultFormat) -> bytes:
    try:
        parsed = ox.parse_query_results(
            body.replace(f'"value":"{BLANK_IRI}'.encode(), b'"value":"'), ox.QueryResultsFormat.JSON
        )
        return parsed.serialize(format=_SERIALISED_ROWS[result]) or b""
    except (SyntaxError, ValueError) as error:
        raise QueryError(
            f"the result holds a term that {result.value} cannot ({error}): ask for {ROWS}"
        ) from error


def _graph(answer: EndpointAnswer, result: ResultFormat, max_rows: int) -> QueryResult:
    is_turtle = answer.media_type == "text/turtle"
    body = answer.body
    if not answer.complete and not is_turtle:
        body = body[: body.rfind(b"\n") + 1]
    triples: list[ox.Triple] = []
    truncated = not answer.complete
    try:
        for quad in ox.parse(
            body, format=ox.RdfFormat.TURTLE if is_turtle else ox.RdfFormat.N_TRIPLES, lenient=True
        ):
            if len(triples) == max_rows:
                truncated = True
                break
            triples.append(quad.triple)
    except SyntaxError as error:
        if answer.complete:
            raise UnreadableError(f"answered what is not a graph ({error.msg})") from error
    cut_there = answer.max_rows is not None and len(triples) >= answer.max_rows
    written = ox.serialize(triples, format=_SERIALISED_GRAPHS[result]) or b""
    return QueryResult(written, result, len(triples), truncated or cut_there)

"""SPARQL Update: INSERT DATA, DELETE DATA, DELETE WHERE, and DELETE and INSERT with WHERE.

What an operation deletes and inserts is found by CONSTRUCT queries, one for each of its templates. They run
like any query: in a process that can be killed, checked, and without a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyoxigraph as ox

from kbqa.errors import ChangeTooLargeError, GraphChangeError
from kbqa.kg.changes.batch import MAX_TRIPLES, Batch, triple_of
from kbqa.kg.embedded.overlay import Triple
from kbqa.kg.sparql.guard import ResultFormat
from kbqa.kg.store import GraphStore
from kbqa.logical_forms.sparql_tokens import Token, position, tokenize

_ALLOWED = "INSERT DATA, DELETE DATA, DELETE WHERE and DELETE or INSERT with WHERE"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an update.

    Attributes:
        deleted, inserted: queries for its triples; None if it deletes or inserts nothing.
        reads: whether they depend on the graph.
    """

    deleted: str | None
    inserted: str | None
    reads: bool


def read_update(text: str) -> list[Operation]:
    """The operations of an update.

    Raises:
        GraphChangeError: the update has other operations, or does not follow the syntax.
    """
    return _Reader(text).operations()


def batch_of_update(text: str, store: GraphStore, *, named: bool, deadline_s: float) -> Batch:
    """What an update deletes and inserts.

    Args:
        store: the graph, as callers see it.
        named: whether its ids are names from a delimited file.
        deadline_s: seconds for each query.

    Raises:
        GraphChangeError: the update is not one of those that are allowed.
        ChangeTooLargeError: it changes too many triples.
        QueryError, GraphUnavailableError: as `GraphStore.query`.
    """
    inserted: set[Triple] = set()
    deleted: set[Triple] = set()
    for operation in read_update(text):
        if operation.reads and (inserted or deleted):
            raise GraphChangeError(
                "an operation with WHERE comes after others, whose changes it would not see: send it first, "
                "or by itself"
            )
        gone, new = (
            _triples(query, store, named=named, deadline_s=deadline_s)
            for query in (operation.deleted, operation.inserted)
        )
        inserted = inserted - gone | new
        deleted = deleted | gone - new
    return Batch(frozenset(inserted), frozenset(deleted - inserted))


def _triples(query: str | None, store: GraphStore, *, named: bool, deadline_s: float) -> set[Triple]:
    if query is None:
        return set()
    result = store.query(query, result=ResultFormat.NTRIPLES, deadline_s=deadline_s)
    if result.truncated or result.rows > MAX_TRIPLES:
        raise ChangeTooLargeError(
            f"the update changes more than {min(MAX_TRIPLES, result.rows)} triples: narrow its WHERE, or "
            "change the graph with kbqa kg update"
        )
    try:
        return {
            triple_of(quad, named=named, blank=True)
            for quad in ox.parse(result.body, format=ox.RdfFormat.N_TRIPLES)
        }
    except ValueError as error:
        raise GraphChangeError(str(error)) from None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [token for token in tokenize(text) if token.kind != "space"]
        self._at = 0
        self._prologue = ""

    def operations(self) -> list[Operation]:
        found = []
        while self._at < len(self._tokens):
            self._read_prologue()
            if self._at < len(self._tokens):
                found.append(self._operation())
            if self._at < len(self._tokens) and self._take().text != ";":
                self._at -= 1
                raise self._wrong('expected ";" between two operations')
        if not found:
            raise GraphChangeError(f"the update has no operation: {_ALLOWED} are allowed")
        return found

    def _read_prologue(self) -> None:
        while (word := self._word()) in ("PREFIX", "BASE"):
            parts = [self._take() for _ in range(3 if word == "PREFIX" else 2)]
            self._prologue += " ".join(part.text for part in parts) + "\n"

    def _operation(self) -> Operation:
        word = self._word()
        if word not in ("INSERT", "DELETE"):
            raise self._wrong(f"{word or 'this'} is not allowed in an update, only {_ALLOWED} are")
        self._take()
        following = self._word()
        if following == "DATA":
            self._take()
            data = self._query(self._group(template=True), "{}")
            return Operation(data if word == "DELETE" else None, data if word == "INSERT" else None, False)
        if following == "WHERE" and word == "DELETE":
            self._take()
            pattern = self._group(template=True)
            return Operation(self._query(pattern, pattern), None, True)
        first = self._group(template=True)
        templates: dict[str, str] = {word: first}
        if word == "DELETE" and self._word() == "INSERT":
            self._take()
            templates["INSERT"] = self._group(template=True)
        if self._word() != "WHERE":
            raise self._wrong("expected WHERE")
        self._take()
        where = self._group(template=False)
        deleted, inserted = (
            self._query(templates[kind], where) if kind in templates else None
            for kind in ("DELETE", "INSERT")
        )
        return Operation(deleted, inserted, True)

    def _query(self, template: str, where: str) -> str:
        return f"{self._prologue}CONSTRUCT {template} WHERE {where}"

    def _group(self, *, template: bool) -> str:
        """The text of a group in braces."""
        if self._at == len(self._tokens) or self._tokens[self._at].text != "{":
            raise self._wrong('expected "{"')
        first, depth = self._tokens[self._at], 0
        while self._at < len(self._tokens):
            token = self._take()
            depth += (token.text == "{") - (token.text == "}")
            if template and (token.text == "[" or token.text.startswith("_:")) and token.kind != "string":
                self._at -= 1
                raise self._wrong(
                    "a blank node has no name by which a change could mean it: write an IRI, or a variable "
                    "that WHERE binds"
                )
            if not depth:
                return self._text[first.start : token.start + 1]
        raise self._wrong('expected "}"')

    def _word(self) -> str:
        """The next word in capitals; empty if something else follows."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return token.text.upper() if token is not None and token.kind == "word" else ""

    def _take(self) -> Token:
        if self._at == len(self._tokens):
            raise self._wrong("the update ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _wrong(self, reason: str) -> GraphChangeError:
        known: Sequence[Token] = self._tokens[self._at : self._at + 1]
        where = position(self._text, known[0].start if known else len(self._text))
        return GraphChangeError(f"the update, at {where}: {reason}")

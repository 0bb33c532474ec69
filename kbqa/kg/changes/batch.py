"""One batch of changes: triples to insert and to delete, all or none of them."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyoxigraph as ox

from kbqa.errors import ChangeTooLargeError, GraphChangeError
from kbqa.kg.embedded.overlay import Difference, Triple
from kbqa.kg.embedded.oxigraph import OxigraphStore, id_of_term
from kbqa.kg.loading.files import GraphSource
from kbqa.kg.naming import ENTITY_NAMESPACE, RELATION_NAMESPACE, name_of

MAX_TRIPLES = 10_000  # of a batch that is sent to a service
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Batch:
    """Triples by the ids of the graph's files. They are deleted first, then inserted."""

    inserted: frozenset[Triple] = frozenset()
    deleted: frozenset[Triple] = frozenset()

    def __len__(self) -> int:
        return len(self.inserted) + len(self.deleted)

    @property
    def digest(self) -> str:
        content = json.dumps([sorted(self.inserted), sorted(self.deleted)])
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


class Applied(NamedTuple):
    """What a batch does to a graph.

    Attributes:
        difference: of the graph to its base afterwards.
        inserted, deleted: number of triples that the graph gets, and loses.
        ignored: number of triples of the batch that are there already, or were not there.
    """

    difference: Difference
    inserted: int
    deleted: int
    ignored: int


def applied(batch: Batch, base: OxigraphStore, before: Difference) -> Applied:
    """Apply a batch to a graph that has a difference to its base."""

    def is_there(triple: Triple) -> bool:
        return triple in before.inserted or (triple not in before.deleted and base.edge(*triple) is not None)

    gone = {triple for triple in batch.deleted - batch.inserted if is_there(triple)}
    new = {triple for triple in batch.inserted if not is_there(triple)}
    after = Difference(
        before.inserted - gone | (new - before.deleted), before.deleted - new | (gone - before.inserted)
    )
    return Applied(after, len(new), len(gone), len(batch) - len(new) - len(gone))


def limited(triples: Iterable[Triple]) -> frozenset[Triple]:
    """The triples as a set.

    Raises:
        ChangeTooLargeError: they are more than a service accepts at once.
    """
    found = set()
    for triple in triples:
        found.add(triple)
        if len(found) > MAX_TRIPLES:
            raise ChangeTooLargeError(
                f"a batch has at most {MAX_TRIPLES} triples to insert and {MAX_TRIPLES} to delete: send "
                "several, or change the graph with kbqa kg update"
            )
    return frozenset(found)


def read_triples(text: str, what: str, *, named: bool) -> Iterator[Triple]:
    """The triples of a text in N-Triples; of a graph of names, also lines `subject TAB relation TAB object`.

    Args:
        what: name of the text, for messages.
        named: whether the graph's ids are names from a delimited file.

    Raises:
        GraphChangeError: a line cannot be read, or its triple cannot be changed; names the line.
    """
    # Only \n ends a line: literals may contain Unicode's other line breaks.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            yield from _read_line(line, named)
        except (SyntaxError, ValueError) as error:
            reason = error.msg.partition(": ")[2] or error.msg if isinstance(error, SyntaxError) else error
            raise GraphChangeError(f"{what}, line {number}: {reason}") from None


def _read_line(line: str, named: bool) -> Iterator[Triple]:
    if named and not line.lstrip().startswith(("<", "_:")):
        fields = line.rstrip("\r").split("\t")
        if len(fields) != 3 or not all(map(str.strip, fields)):
            raise ValueError("expected subject, relation and object, separated by tabs, or N-Triples")
        yield (fields[0], fields[1], fields[2])
        return
    for quad in ox.parse(line.encode("utf-8", "replace"), format=ox.RdfFormat.N_TRIPLES):
        yield triple_of(quad, named=named)


def triple_of(quad: ox.Quad, *, named: bool, blank: bool = False) -> Triple:
    """A quad by the ids of the graph's files.

    Args:
        blank: whether blank nodes are those of the graph.

    Raises:
        ValueError: the triple cannot be changed.
    """
    terms = quad.subject, quad.object
    if any(isinstance(term, ox.Triple) for term in terms):
        raise ValueError("triples about triples are not supported")
    if not blank and any(isinstance(term, ox.BlankNode) for term in terms):
        raise ValueError(
            "a blank node has no name by which a change could mean it: write an IRI, or delete with a "
            "SPARQL update whose WHERE finds it"
        )
    head, relation, tail = id_of_term(quad.subject), quad.predicate.value, id_of_term(quad.object)
    if not named:
        return head, relation, tail
    for iri, namespace in (
        (head, ENTITY_NAMESPACE),
        (relation, RELATION_NAMESPACE),
        (tail, ENTITY_NAMESPACE),
    ):
        if not iri.startswith(namespace):
            raise ValueError(
                f"{iri[:_SHOWN_CHARS]} is not a name: this graph was loaded from names, so write names "
                f"separated by tabs, or IRIs that begin with {namespace}"
            )
    return name_of(head), name_of(relation), name_of(tail)


def read_files(files: Iterable[Path], *, named: bool) -> Iterator[Triple]:
    """The triples of files in any format that a graph is loaded from.

    Raises:
        GraphLoadError: a file cannot be read.
        GraphChangeError: a triple cannot be changed.
    """
    for path in files:
        with GraphSource([path]).open() as reader:
            if reader.format.is_named is not named:
                kind = "names" if named else "RDF"
                raise GraphChangeError(
                    f"{path}: the graph was loaded from {kind}, but this is {reader.format}"
                )
            for fact in reader.facts():
                if fact.time:
                    raise GraphChangeError(
                        f"{path}: facts with times cannot be changed: load the graph again"
                    )
                try:
                    yield triple_of(fact.quad, named=named)
                except ValueError as error:
                    raise GraphChangeError(f"{path}: {error}") from None


def parsed(lines: bytes, *, named: bool) -> frozenset[Triple]:
    """The triples of lines that `lines_of` wrote."""
    quads = ox.parse(io.BytesIO(lines), format=ox.RdfFormat.N_TRIPLES)
    return frozenset(triple_of(quad, named=named, blank=True) for quad in quads)

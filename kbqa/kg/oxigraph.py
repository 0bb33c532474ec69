"""Graphs in Oxigraph: look-ups from memory, SPARQL over the store on disk.

What an id is depends on where a graph came from. In delimited files it is the name
as written (`naming` maps it to an IRI). In RDF it is the IRI, `_:b` for blank nodes,
and of a literal its N-Triples form (`"1999"^^<…#gYear>`), since only that tells
`"1"` from `1`. An RDF label is the preferred rdfs:label (untagged, else English, else
the first), a literal's its lexical form; without one it is the id. Every rdfs:label
is accepted as an argument.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyoxigraph as ox

from kbqa.kg.actions import Item, Mention
from kbqa.kg.adjacency import Adjacency
from kbqa.kg.linking import EntityLinker
from kbqa.kg.naming import ENTITY_NAMESPACE, RELATION_NAMESPACE, entity_iri, name_of, relation_iri
from kbqa.kg.query_pool import QueryPool
from kbqa.kg.sparql import QueryResult, ResultFormat, check_query
from kbqa.kg.store import GraphStore

_RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"

Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


class OxigraphStore(Adjacency):
    """A `GraphStore` over one Oxigraph directory, which nothing writes while it is open.

    Args:
        version: short hash of the graph's content.
        named: whether IRIs stand for the names of a delimited file.
        queries: executes SPARQL; a pool of its own, of one process, when None.
    """

    def __init__(
        self, directory: Path, *, version: str, named: bool, queries: QueryPool | None = None
    ) -> None:
        store = ox.Store.read_only(str(directory))
        if named:
            super().__init__(_named_triples(store))
        else:
            labels = _labels(store)
            aliases = ((label, id_) for id_, found in labels.items() for label in found)
            super().__init__(_rdf_triples(store, labels), aliases)
        entities = [(label, item) for label, item in self.nodes() if named or not _is_literal(item)]
        self._entities = len({item.id for _, item in entities})
        self._linker = EntityLinker(entities)
        self._directory, self._version, self._named = directory, version, named
        if queries is None:
            queries = QueryPool(size=1)
            weakref.finalize(self, queries.close)
        self._queries = queries

    @classmethod
    def from_triples(cls, triples: Iterable[tuple[str, str, str]]) -> OxigraphStore:
        """A store of named triples in a temporary directory that goes when the store goes."""
        unique = sorted(set(triples))
        directory = Path(tempfile.mkdtemp(prefix="kbqa-graph-"))
        ox.Store(str(directory)).bulk_extend(named_quad(*triple) for triple in unique)
        version = hashlib.sha256(repr(unique).encode()).hexdigest()[:12]
        store = cls(directory, version=version, named=True)
        weakref.finalize(store, shutil.rmtree, directory, ignore_errors=True)
        return store

    @property
    def version(self) -> str:
        return self._version

    @property
    def entities(self) -> int:
        """Heads and tails; in RDF, literals apart."""
        return self._entities

    def subgraph(self, graph: str) -> GraphStore | None:
        return None  # graphs are loaded without any

    def entity_term(self, id_: str) -> str:
        if self._named:
            return f"<{entity_iri(id_)}>"
        return id_ if id_.startswith(('"', "_:")) else f"<{id_}>"

    def relation_term(self, id_: str) -> str:
        return f"<{relation_iri(id_) if self._named else id_}>"

    def id_of(self, term: Mapping[str, str]) -> str:
        kind, value = term["type"], term["value"]
        if kind == "uri":
            is_name = value.startswith((ENTITY_NAMESPACE, RELATION_NAMESPACE))
            return name_of(value) if self._named and is_name else value
        if kind == "bnode":
            return f"_:{value}"
        datatype = term.get("datatype")
        literal = ox.Literal(
            value, datatype=ox.NamedNode(datatype) if datatype else None, language=term.get("xml:lang")
        )
        return str(literal)

    def link(self, question: str) -> list[Mention]:
        return self._linker.link(question)

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        query = check_query(text)
        if result is None:
            result = ResultFormat.NTRIPLES if query.returns_graph else ResultFormat.JSON
        return self._queries.run(self._directory, query, result, deadline_s=deadline_s)


def named_quad(head: str, relation: str, tail: str) -> ox.Quad:
    """A line of a delimited file as a quad."""
    return ox.Quad(
        ox.NamedNode(entity_iri(head)), ox.NamedNode(relation_iri(relation)), ox.NamedNode(entity_iri(tail))
    )


def _named_triples(store: ox.Store) -> Iterator[tuple[Item, Item, Item]]:
    items: dict[str, Item] = {}

    def item(term: Term) -> Item:
        assert isinstance(term, ox.NamedNode)
        iri = term.value
        if iri not in items:
            name = name_of(iri)
            items[iri] = Item(name, name)
        return items[iri]

    for quad in store.quads_for_pattern(None, None, None):
        yield item(quad.subject), item(quad.predicate), item(quad.object)


def _rdf_triples(store: ox.Store, labels: Mapping[str, Sequence[str]]) -> Iterator[tuple[Item, Item, Item]]:
    items: dict[str, Item] = {}

    def item(term: Term) -> Item:
        id_ = _id(term)
        if id_ not in items:
            label = term.value if isinstance(term, ox.Literal) else labels.get(id_, (id_,))[0]
            items[id_] = Item(id_, label)
        return items[id_]

    for quad in store.quads_for_pattern(None, None, None):
        yield item(quad.subject), item(quad.predicate), item(quad.object)


def _labels(store: ox.Store) -> dict[str, list[str]]:
    """Id → its rdfs:labels, the preferred one first."""
    found: dict[str, list[ox.Literal]] = {}
    for quad in store.quads_for_pattern(None, ox.NamedNode(_RDFS_LABEL), None):
        if isinstance(quad.object, ox.Literal):
            found.setdefault(_id(quad.subject), []).append(quad.object)

    def preference(label: ox.Literal) -> tuple[int, str]:
        language = label.language or ""
        return (0 if not language else 1 if language.split("-")[0] == "en" else 2), label.value

    return {id_: [label.value for label in sorted(labels, key=preference)] for id_, labels in found.items()}


def _id(term: Term) -> str:
    return term.value if isinstance(term, ox.NamedNode) else str(term)


def _is_literal(item: Item) -> bool:
    return item.id.startswith('"')

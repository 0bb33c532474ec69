"""Graphs in Oxigraph: look-ups from memory, SPARQL over the store on disk.

What an id is depends on where a graph came from. In delimited files it is the name
as written (`naming` maps it to an IRI). In RDF it is the IRI, `_:b` for blank nodes,
and of a literal its N-Triples form (`"1999"^^<…#gYear>`), since only that tells
`"1"` from `1`. An RDF label is the preferred rdfs:label or Freebase name (untagged, else
English, else the first), a literal's its lexical form; without one it is the id. Every
label is accepted as an argument.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pyoxigraph as ox

from kbqa.kg.actions import Item, Mention
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.indexing import IndexBuilder
from kbqa.kg.linking.linker import EntityLinker
from kbqa.kg.loading.facts import Fact, Label, label_quad, statement_quads
from kbqa.kg.naming import ENTITY_NAMESPACE, RELATION_NAMESPACE, entity_iri, name_of, relation_iri
from kbqa.kg.sparql.guard import QueryResult, ResultFormat, check_query
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.subgraphs import Subgraph, Subgraphs

_STORE, _INDEX, SUBGRAPHS = "store", "index", "subgraphs"  # in the directory of a graph

_LABEL_RELATIONS = frozenset(
    {"http://www.w3.org/2000/01/rdf-schema#label", "http://rdf.freebase.com/ns/type.object.name"}
)
_XSD = "http://www.w3.org/2001/XMLSchema#"
# Typed literals that a store surely gives back as they were.
_CANONICAL = re.compile(
    r'"(?:0|-?[1-9][0-9]{0,17})"\^\^<http://www\.w3\.org/2001/XMLSchema#integer>'
    r'|"[0-9]{4}"\^\^<http://www\.w3\.org/2001/XMLSchema#gYear>'
)
_ANY = ox.NamedNode("urn:kbqa:any")

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
        super().__init__(directory / _INDEX)
        self._directory, self._version, self._named = directory / _STORE, version, named
        self._subgraphs = Subgraphs(directory / SUBGRAPHS)
        self._linker: EntityLinker | None = None
        self._linker_lock = threading.Lock()
        if queries is None:
            queries = QueryPool(size=1)
            weakref.finalize(self, queries.close)
        self._queries = queries

    @classmethod
    def from_triples(cls, triples: Iterable[tuple[str, str, str]]) -> OxigraphStore:
        """A store of named triples in a temporary directory that goes when the store goes."""
        unique = sorted(set(triples))
        directory = Path(tempfile.mkdtemp(prefix="kbqa-graph-"))
        write_graph(directory, (Fact(named_quad(*triple)) for triple in unique), named=True)
        version = hashlib.sha256(repr(unique).encode()).hexdigest()[:12]
        store = cls(directory, version=version, named=True)
        weakref.finalize(store, shutil.rmtree, directory, ignore_errors=True)
        return store

    @property
    def version(self) -> str:
        return self._version

    def subgraph(self, graph: str) -> Subgraph | None:
        return self._subgraphs.get(graph, self, self)

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
        with self._linker_lock:
            if self._linker is None:
                # Of millions of names it takes a while: only those who have to link wait for it.
                names = self.nodes()
                linked = names if self._named else (name for name in names if not _is_literal(name[1]))
                self._linker = EntityLinker(linked)
        return self._linker.link(question)

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        query = check_query(text)
        if result is None:
            result = ResultFormat.NTRIPLES if query.returns_graph else ResultFormat.JSON
        return self._queries.run(self._directory, query, result, deadline_s=deadline_s)


def write_graph(
    directory: Path,
    facts: Iterable[Fact],
    labels: Iterable[Label] = (),
    *,
    named: bool,
    type_relations: Iterable[str] = (),
) -> int:
    """Write the facts of a graph where `OxigraphStore` can open it.

    Args:
        directory: exists, and is empty or holds other things.
        labels: asked for after all facts; those of what is not in the graph are passed over.
        named: whether the facts come from a delimited file, by `named_quad`.
        type_relations: ids of relations that say of what type a thing is, beside the usual ones.

    Returns:
        The number of distinct triples.
    """
    store = ox.Store(str(directory / _STORE))
    index = IndexBuilder(named=named, type_relations=type_relations)
    store.bulk_extend(_indexed(facts, index, named=named))
    store.bulk_extend(_labelled(labels, index, named=named))
    store.flush()
    del store  # closes it
    (directory / _INDEX).mkdir()
    return index.write(directory / _INDEX)


def named_quad(head: str, relation: str, tail: str) -> ox.Quad:
    """A line of a delimited file as a quad."""
    return ox.Quad(_entity_node(head), _relation_node(relation), _entity_node(tail))


# The names of a file come again and again, and their IRIs cost more than all the rest of its reading.
@lru_cache(1 << 18)
def _entity_node(name: str) -> ox.NamedNode:
    return ox.NamedNode(entity_iri(name))


@lru_cache(1 << 16)
def _relation_node(name: str) -> ox.NamedNode:
    return ox.NamedNode(relation_iri(name))


def _indexed(facts: Iterable[Fact], index: IndexBuilder, *, named: bool) -> Iterator[ox.Quad]:
    """The facts as quads, each put into the index as it passes."""
    for fact in facts:
        quad, time = fact
        head, relation, tail = _term(quad.subject), quad.predicate.value, quad.object
        label = tail if relation in _LABEL_RELATIONS and isinstance(tail, ox.Literal) else None
        # Names have no literals; a label that they are given is no triple of theirs.
        if label is None or not named:
            index.add(head, relation, _term(tail), (time,) if time else ())
        if label is not None:
            language = (label.language or "").split("-")[0]
            index.add_label(head, label.value, 1 if not language else 2 if language == "en" else 3)
        yield quad
        if time:
            yield from statement_quads(fact)


def _labelled(labels: Iterable[Label], index: IndexBuilder, *, named: bool) -> Iterator[ox.Quad]:
    """The labels as quads, each put into the index as it passes; they go before those of the facts."""
    for label in labels:
        terms = (entity_iri(label.id), relation_iri(label.id)) if named else (label.id,)
        for term in terms:
            is_literal = term.startswith('"')  # which has its own value for a label
            if not is_literal and index.add_label(term, label.name, 0 if label.preferred else 4):
                yield label_quad(term, label)


def _term(term: Term) -> str:
    """A term as it comes back from a store, which keeps numbers as values: `01` as `1`."""
    if isinstance(term, ox.NamedNode):
        return term.value
    text = str(term)
    if f"^^<{_XSD}" not in text or _CANONICAL.fullmatch(text):
        return text
    return _stored(term)


@lru_cache(1 << 16)
def _stored(term: Term) -> str:
    store = ox.Store()
    store.add(ox.Quad(_ANY, _ANY, term))
    [quad] = store
    return str(quad.object)


def _is_literal(item: Item) -> bool:
    return item.id.startswith('"')

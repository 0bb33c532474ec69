"""Graphs in Oxigraph: look-ups from memory, SPARQL over the store on disk.

The form of an id depends on the graph's source. In delimited files an id is the name as
written (`naming` maps it to an IRI). In RDF it is the IRI, `_:b` for a blank node, or the
N-Triples form of a literal (`"1999"^^<…#gYear>`), since only that form distinguishes
`"1"` from `1`. The label of an RDF node is its rdfs:label or Freebase name in the best language
(`kbqa.kg.languages`), else one that `IndexBuilder` finds in SKOS or in relations such as
foaf:name; a literal's label is its lexical form. A node without a label
has its id as label. Every label is accepted as an argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path

import pyoxigraph as ox

from kbqa.kg.actions import Item, Mention
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.indexing import IndexBuilder
from kbqa.kg.embedded.mapped_names import MappedNames, write_names
from kbqa.kg.embedded.names import ALIAS, FIRST_NAME, LABEL_RELATIONS
from kbqa.kg.embedded.vocabulary import Vocabulary, naming_relations, texts, vocabulary
from kbqa.kg.languages import DEFAULT_LANGUAGES, rank
from kbqa.kg.linking.linker import EntityLinker
from kbqa.kg.loading.facts import (
    Fact,
    Label,
    NamedTriples,
    each_fact,
    label_quad,
    named_quad,
    statement_quads,
)
from kbqa.kg.loading.scratch import ScratchDirectory
from kbqa.kg.naming import ENTITY_NAMESPACE, RELATION_NAMESPACE, entity_iri, name_of, relation_iri
from kbqa.kg.sparql.guard import QueryResult, ResultFormat, check_query
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.subgraphs import Subgraph, Subgraphs

STORE, INDEX, SUBGRAPHS = "store", "index", "subgraphs"  # in the directory of a graph

_XSD = "http://www.w3.org/2001/XMLSchema#"
# Typed literals that the store is known to return unchanged.
_CANONICAL = re.compile(
    r'"(?:0|-?[1-9][0-9]{0,17})"\^\^<http://www\.w3\.org/2001/XMLSchema#integer>'
    r'|"[0-9]{4}"\^\^<http://www\.w3\.org/2001/XMLSchema#gYear>'
)
_ANY = ox.NamedNode("urn:kbqa:any")

Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


class OxigraphStore(Adjacency):
    """A `GraphStore` over one Oxigraph directory, which must not be written while it is open.

    Args:
        version: short hash of the graph's content.
        named: whether IRIs stand for the names in a delimited file.
        queries: executes SPARQL; if None, the store starts its own pool of one process.
    """

    def __init__(
        self, directory: Path, *, version: str, named: bool, queries: QueryPool | None = None
    ) -> None:
        self._index = directory / INDEX
        super().__init__(self._index)
        self._directory, self._version, self._named = directory / STORE, version, named
        self._subgraphs = Subgraphs(directory / SUBGRAPHS)
        self._linker: EntityLinker | None = None
        self._linker_lock = threading.Lock()
        if queries is None:
            queries = QueryPool(size=1)
            weakref.finalize(self, queries.close)
        self._queries = queries

    @classmethod
    def from_triples(cls, triples: Iterable[tuple[str, str, str]]) -> OxigraphStore:
        """A store of named triples in a temporary directory that is removed with the store."""
        unique = sorted(set(triples))
        scratch = ScratchDirectory()
        write_graph(scratch.path, (Fact(named_quad(*triple)) for triple in unique), named=True)
        version = hashlib.sha256(repr(unique).encode()).hexdigest()[:12]
        store = cls(scratch.path, version=version, named=True)
        weakref.finalize(store, scratch.close)
        return store

    @property
    def of_names(self) -> bool:
        """Whether ids are names from a delimited file."""
        return self._named

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
        return self.linker().link(question)

    def complete(self, text: str, *, limit: int) -> list[Item]:
        return self.linker().complete(text, limit)

    def linker(self) -> EntityLinker:
        """Finds the entities of this version in questions."""
        with self._linker_lock:
            if self._linker is None:
                # Where it is built in memory, that takes a while, so only callers of `link` wait for it.
                self._linker = self._make_linker()
        return self._linker

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What of the graph is schema."""
        return vocabulary(self, named=self._named)

    @cached_property
    def naming(self) -> frozenset[str]:
        """Relations to names and identifiers that do not serve as labels."""
        return frozenset(self.relation_at(link).id for link in naming_relations(self))

    def _make_linker(self) -> EntityLinker:
        schema, classes = self.vocabulary
        if not MappedNames.exist(self._index):  # written before names were
            return self._linker_in_memory()
        return EntityLinker.of_index(
            MappedNames(self._index, self._nodes, schema), schema=schema, classes=classes
        )

    def _linker_in_memory(self) -> EntityLinker:
        schema, classes = self.vocabulary
        if self._named:
            return EntityLinker(self.nodes(), schema=schema, classes=classes)
        entities = (name for name in self.nodes() if not _is_literal(name[1]))
        values = texts(self, self.links_named(*self.naming))
        return EntityLinker(entities, schema=schema, classes=classes, values=values)

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        query = check_query(text)
        result = result or query.default_format
        return self._queries.run(self._directory, query, result, deadline_s=deadline_s)


def write_graph(
    directory: Path,
    facts: Iterable[Fact | NamedTriples],
    labels: Iterable[Label] = (),
    *,
    named: bool,
    type_relations: Iterable[str] = (),
    languages: Sequence[str] = DEFAULT_LANGUAGES,
) -> int:
    """Write the facts of a graph into a directory that `OxigraphStore` can open.

    Args:
        directory: must exist; files other than the store and index are left alone.
        labels: read after all facts; labels of terms that are not in the graph are skipped.
        named: whether the facts come from a delimited file: `NamedTriples`, or facts by `named_quad`.
        type_relations: ids of further relations that give an entity's type.
        languages: of labels in RDF, the preferred one first.

    Returns:
        The number of distinct triples.
    """
    store = ox.Store(str(directory / STORE))
    index = IndexBuilder(named=named, type_relations=type_relations, languages=languages)
    (directory / INDEX).mkdir()
    if named:
        names = (f"{quad} .\n" for quad in _labelled(labels, index, named=named))
        with _loading(store, chain(_named_lines(facts, index), names)):
            num_triples = index.write(directory / INDEX)
            _write_names(directory / INDEX, named=named)
    else:
        quads = _indexed(each_fact(facts), index, languages=languages)
        store.bulk_extend(chain(quads, _labelled(labels, index, named=named)))
        num_triples = index.write(directory / INDEX)
        _write_names(directory / INDEX, named=named)
    store.flush()
    del store  # closes it
    return num_triples


def _write_names(directory: Path, *, named: bool) -> None:
    index = Adjacency(directory)
    write_names(directory, index, vocabulary(index, named=named), naming_relations(index), named=named)


@contextmanager
def _loading(store: ox.Store, lines: Iterable[str]) -> Iterator[None]:
    """Load N-Triples while they are made; within the block, Oxigraph still sorts the last of them."""
    reading, writing = os.pipe()

    def load() -> None:
        try:
            store.bulk_load(path=f"/dev/fd/{reading}", format=ox.RdfFormat.N_TRIPLES, lenient=True)
        finally:
            os.close(reading)  # if it failed, nobody must wait until it has read everything

    with ThreadPoolExecutor(1) as threads:
        loading = threads.submit(load)
        with suppress(BrokenPipeError), open(writing, "wb") as pipe:
            for text in lines:
                pipe.write(text.encode())
        yield
        loading.result()


def _named_lines(facts: Iterable[Fact | NamedTriples], index: IndexBuilder) -> Iterator[str]:
    """Yield facts of a delimited file in N-Triples, and add each to the index."""
    for fact in facts:
        if isinstance(fact, NamedTriples):
            index.extend(fact.heads, fact.relations, fact.tails)
            yield fact.n_triples()
            continue
        quad, time = fact
        head, relation, tail = (name_of(id_of_term(term)) for term in quad.triple)
        index.add(head, relation, tail, (time,) if time else ())
        yield f"{quad} .\n"
        if time:
            yield "".join(f"{said} .\n" for said in statement_quads(fact))


def _indexed(facts: Iterable[Fact], index: IndexBuilder, *, languages: Sequence[str]) -> Iterator[ox.Quad]:
    """Yield the facts as quads, and add each to the index."""
    for fact in facts:
        quad, time = fact
        head, relation, tail = id_of_term(quad.subject), quad.predicate.value, quad.object
        index.add(head, relation, id_of_term(tail), (time,) if time else ())
        if relation in LABEL_RELATIONS and isinstance(tail, ox.Literal):
            index.add_label(head, tail.value, FIRST_NAME + rank(tail.language or "", languages))
        yield quad
        if time:
            yield from statement_quads(fact)


def _labelled(labels: Iterable[Label], index: IndexBuilder, *, named: bool) -> Iterator[ox.Quad]:
    """Yield the labels as quads, and add each to the index; a preferred one outranks labels in the facts."""
    for label in labels:
        if not named and label.id.startswith('"'):  # a literal's label is its value
            continue
        is_node, is_relation = index.add_label(label.id, label.name, 0 if label.preferred else ALIAS)
        if not named:
            terms = [label.id] if is_node or is_relation else []
        else:
            terms = [entity_iri(label.id)] * is_node + [relation_iri(label.id)] * is_relation
        for term in terms:
            yield label_quad(term, label)


def id_of_term(term: Term) -> str:
    """A term as the store returns it; the store normalises numbers (`01` becomes `1`)."""
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

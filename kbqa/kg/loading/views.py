"""Views: graphs that hold only those facts of another graph which some callers may know.

A view is written as a graph of its own, with its own store and index. No answer, count, distance, linker,
query or cache can then tell more than the view holds, because the rest is not there: nothing has to be
filtered when a question is asked, and SPARQL needs no rewriting. The price is a copy of these facts.

Names follow facts. An entity or relation keeps its names (rdfs:label, SKOS, a file of labels) if a fact of
the view mentions it. A description may tell anything, so its relation must be listed like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from kbqa.errors import ConfigurationError
from kbqa.kg.embedded.names import LABEL_RELATIONS, SKOS_LABELS
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.loading.facts import Fact, Label
from kbqa.kg.loading.stored import Mask, Numbers, PlacedColumns, columns_of, facts_of, labels_of
from kbqa.kg.naming import RELATION_NAMESPACE
from kbqa.kg.store import GraphStore

_NAMING = LABEL_RELATIONS | SKOS_LABELS


@dataclass(frozen=True, slots=True)
class ViewLimits:
    """What of a graph a view holds. A fact must satisfy every limit that is given.

    Attributes:
        relations: ids or labels of the relations of its facts.
        types: ids or labels of types. A fact is between entities of these types, says that an entity has such
            a type, or leads from an entity to a value: a literal or, in a graph of names, a name without
            facts of its own.
        subgraphs: ids of per-question subgraphs; a fact must be in one of them.
        type_relations: relations that give an entity's type, besides those of RDF, Wikidata and Freebase.
    """

    relations: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    subgraphs: tuple[str, ...] = ()
    type_relations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.relations or self.types or self.subgraphs):
            raise ConfigurationError("a view needs a limit: name relations, types or per-question subgraphs")

    def to_json(self) -> dict[str, list[str]]:
        return {name: list(values) for name, values in asdict(self).items()}


class ViewFacts:
    """The facts of a view, chosen from those of a loaded graph.

    Takes one byte of memory for each fact of the graph.

    Args:
        store: the graph, by the ids of its files.
        shown: the same graph as callers see it, perhaps with short ids, in which the limits are named.
        below: the ids of `store` that ids of `shown` stand for.

    Raises:
        ConfigurationError: a limit names nothing in the graph.
    """

    def __init__(
        self,
        store: OxigraphStore,
        shown: GraphStore,
        below: Callable[[Sequence[str]], Sequence[str]],
        limits: ViewLimits,
    ) -> None:
        self._store, self._out = store, store.sides[0]
        self._shown, self._below = shown, below
        self._links = {item.id: number for number, item in enumerate(store.relations())}
        further = (store.relations()[link].id for link in self._relations(limits.type_relations))
        self.type_relations = tuple(dict.fromkeys((*store.rules.type_relations, *further)))
        kept = np.ones(store.triples, bool)
        for chosen in self._tests(limits):
            kept &= np.concatenate([chosen(columns) for columns in columns_of(self._store)] or [kept])
        self._kept = kept
        self._nodes, self._mentioned = self._mentions()
        if not store.of_names:
            self._keep_names()

    def facts(self) -> Iterator[Fact]:
        """The facts with their times, as reading a file yields them."""
        yield from facts_of(self._store, self._kept)

    def labels(self, store: Path) -> Iterator[Label]:
        """Names from a file of labels, which are in the graph's Oxigraph store, but no facts."""
        for subject, label in labels_of(self._store, store):
            if self._is_mentioned(subject, label.id):
                yield label

    def begins_with(self, iri: str) -> bool:
        """Whether any id of the view does."""
        relations = (
            item.id for item, there in zip(self._store.relations(), self._mentioned, strict=True) if there
        )
        nodes = map(self._store.id_at, np.flatnonzero(self._nodes).tolist())
        return any(id_.startswith(iri) for ids in (relations, nodes) for id_ in ids)

    def _tests(self, limits: ViewLimits) -> Iterator[Callable[[PlacedColumns], Mask]]:
        if limits.relations:
            links = self._relations(limits.relations)
            yield lambda columns: np.isin(columns[2], links)
        if limits.types:
            yield self._of_types(limits.types)
        if limits.subgraphs:
            edges = self._edges(limits.subgraphs)
            yield lambda columns: np.isin(columns[0], edges)

    def _of_types(self, names: Sequence[str]) -> Callable[[PlacedColumns], Mask]:
        ids = [self._found("type", name, self._shown.resolve_entity) for name in names]
        types = self._store.numbers(self._below([id_ for some in ids for id_ in some]))
        named = {*self._store.type_relations, *self.type_relations}
        links = [number for id_, number in self._links.items() if id_ in named]
        is_known = np.zeros(self._store.num_nodes, bool)
        for kind in types.tolist():
            for link in links:
                is_known[np.asarray(self._store.sides[1].neighbours(kind, link))] = True

        def chosen(columns: PlacedColumns) -> Mask:
            _, heads, relations, tails = columns
            says_type: Mask = np.isin(relations, links) & np.isin(tails, types)
            ends: Mask = is_known[tails] | says_type | self._are_values(tails)
            known: Mask = is_known[heads]
            return known & ends

        return chosen

    def _are_values(self, nodes: Numbers) -> Mask:
        unique, places = np.unique(nodes, return_inverse=True)
        if self._store.of_names:
            values: Mask = self._out.degrees(unique) == 0
        else:
            values = np.array([self._store.id_at(node).startswith('"') for node in unique.tolist()], bool)
        found: Mask = values[places]
        return found

    def _edges(self, samples: Sequence[str]) -> Numbers:
        edges: set[int] = set()
        for sample in samples:
            subgraph = self._store.subgraph(sample)
            if subgraph is None:
                raise ConfigurationError(f'the graph has no per-question subgraph "{sample}"')
            edges.update(subgraph.edges())
        return np.fromiter(sorted(edges), np.int64)

    def _relations(self, names: Sequence[str]) -> list[int]:
        ids = [self._found("relation", name, self._shown.resolve_relation) for name in names]
        return sorted({self._links[id_] for id_ in self._below([id_ for some in ids for id_ in some])})

    def _found(self, kind: str, name: str, resolve: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
        found = resolve(name)
        if not found:
            raise ConfigurationError(f'the graph has no {kind} "{name}": name it by its id or label')
        return found

    def _mentions(self) -> tuple[Mask, Mask]:
        """The nodes and the relations of the facts that are kept."""
        nodes, links = np.zeros(self._store.num_nodes, bool), np.zeros(len(self._links), bool)
        for places, heads, relations, tails in columns_of(self._store):
            kept = self._kept[places]
            nodes[heads[kept]] = nodes[tails[kept]] = True
            links[relations[kept]] = True
        return nodes, links

    def _keep_names(self) -> None:
        """Add the facts that name entities and relations of the view."""
        naming = [number for id_, number in self._links.items() if id_ in _NAMING]
        ids = [item.id for item, there in zip(self._store.relations(), self._mentioned, strict=True) if there]
        named = self._nodes.copy()
        named[self._store.numbers(ids)] = True
        for places, heads, relations, tails in columns_of(self._store):
            self._kept[places] |= np.isin(relations, naming) & named[heads] & self._are_values(tails)

    def _is_mentioned(self, term: str, id_: str) -> bool:
        link = self._links.get(id_)
        is_relation = link is not None and bool(self._mentioned[link])
        nodes = self._store.numbers([id_])
        is_node = len(nodes) > 0 and bool(self._nodes[nodes[0]])
        if self._store.of_names:  # a relation and an entity may share a name
            return is_relation if term.startswith(RELATION_NAMESPACE) else is_node
        return is_relation or is_node

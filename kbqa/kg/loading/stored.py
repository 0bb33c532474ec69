"""Reads the facts and names of a written graph again, as reading its files yields them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyoxigraph as ox

from kbqa.kg.embedded.overlay import Triple
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.loading.facts import Fact, Label

_CHUNK = 1 << 16  # nodes whose facts are looked at together
_LABEL = ox.NamedNode("http://www.w3.org/2000/01/rdf-schema#label")
_ALIAS = ox.NamedNode("http://www.w3.org/2004/02/skos/core#altLabel")

Numbers = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]
# Positions of facts among all facts of the graph, and their heads, relations and tails.
PlacedColumns = tuple[Numbers, Numbers, Numbers, Numbers]


def columns_of(store: OxigraphStore) -> Iterator[PlacedColumns]:
    """All facts in the order of their positions, in pieces."""
    place = 0
    for first in range(0, store.num_nodes, _CHUNK):
        nodes = np.arange(first, min(first + _CHUNK, store.num_nodes))
        heads, links, tails = store.sides[0].columns(nodes)
        yield np.arange(place, place + len(heads)), heads, links, tails
        place += len(heads)


def facts_of(store: OxigraphStore, kept: Mask) -> Iterator[Fact]:
    """The facts at the positions where a mask is True, with their times."""
    relations = store.relations()
    for places, *columns in columns_of(store):
        there = np.flatnonzero(kept[places])
        rows = list(zip(*(column[there].tolist() for column in (places, *columns)), strict=True))
        triples = ((store.id_at(h), relations[link].id, store.id_at(t)) for _, h, link, t in rows)
        quads = ox.parse("".join(lines_of(triples, store)).encode(), format=ox.RdfFormat.N_TRIPLES)
        for (place, *_), quad in zip(rows, quads, strict=True):
            yield from (Fact(quad, time) for time in store.times_of(place) or ("",))


def lines_of(triples: Iterable[Triple], store: OxigraphStore) -> Iterator[str]:
    """Triples of a graph in N-Triples, each with its line break."""
    for head, relation, tail in triples:
        yield f"{store.entity_term(head)} {store.relation_term(relation)} {store.entity_term(tail)} .\n"


def labels_of(store: OxigraphStore, directory: Path) -> Iterator[tuple[str, Label]]:
    """Names from a file of labels, which are in the graph's Oxigraph store, but no facts.

    Args:
        directory: of that store.

    Yields:
        The IRI or label of the node that is named, and its name.
    """
    stored = ox.Store.read_only(str(directory))
    for relation in (_LABEL, _ALIAS):
        for quad in stored.quads_for_pattern(None, relation, None):
            assert isinstance(quad.subject, ox.NamedNode | ox.BlankNode)
            assert isinstance(quad.object, ox.Literal)
            is_blank, subject = isinstance(quad.subject, ox.BlankNode), quad.subject.value
            id_ = store.id_of({"type": "bnode" if is_blank else "uri", "value": subject})
            if store.edge(id_, relation.value, str(quad.object)) is None:
                yield subject, Label(id_, quad.object.value, relation is _LABEL)

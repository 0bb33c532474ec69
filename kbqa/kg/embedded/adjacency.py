"""One-hop look-ups in a memory-mapped index on disk.

A look-up costs a few array accesses, independent of an entity's degree and the graph's
size; a page costs time proportional to its length. `indexing` writes and describes the index.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kbqa.kg.actions import DatedItem, Item
from kbqa.kg.embedded.indexing import as_stored
from kbqa.kg.embedded.members import FormIndex
from kbqa.kg.embedded.names import NamingRules
from kbqa.kg.embedded.sides import MappedSide, Side
from kbqa.kg.embedded.surveying import Surveyor
from kbqa.kg.embedded.tables import map_numbers
from kbqa.kg.embedded.terms import Terms, Times
from kbqa.kg.embedded.walks import (
    Numbers,
    Reached,
    relations_among,
    spread,
    vias,
)
from kbqa.kg.forms import resolved_name
from kbqa.kg.store import MAX_FRONTIER, MAX_SURROUNDED, MAX_VIAS, HubLimits, Page, PathStep, Survey, Walk
from kbqa.logical_forms.algebra import Entity, Expression, Literal, entities
from kbqa.logical_forms.compiler import FREEBASE


class Adjacency:
    """The triples of a graph, indexed both ways.

    Nothing writes the index while it is open, so any number of threads may read it.

    Args:
        directory: written by `IndexBuilder.write`.
    """

    # The type of arrays of numbers.
    _numbered_by: type[np.number[Any]] = np.int64

    def __init__(self, directory: Path) -> None:
        self._nodes = Terms(directory, "nodes", "names", "labels")
        relations = Terms(directory, "relations", "relation_names", "relation_labels")
        self._relations = tuple(map(relations.item, range(len(relations))))
        self._relation_terms = relations
        self.sides = MappedSide(directory, "out"), MappedSide(directory, "in")
        self._out: Side
        self._in: Side
        self._out, self._in = self.sides
        self._types = map_numbers(directory / "types.npy")
        self._times = Times(directory)
        self.rules = NamingRules.read(directory) or NamingRules()
        counts = json.loads((directory / "index.json").read_text())
        self._num_triples, self._num_entities = int(counts["triples"]), int(counts["entities"])

    @cached_property
    def _forms(self) -> FormIndex:
        # A weak reference, so that an unused graph is closed at once.
        return FormIndex(weakref.proxy(self), now=FREEBASE.now)

    @cached_property
    def _surveyor(self) -> Surveyor:
        return Surveyor(weakref.proxy(self), self._forms)

    @property
    def is_remote(self) -> bool:
        return False

    @property
    def hub_limits(self) -> HubLimits:
        return HubLimits()

    @property
    def query_deadline_s(self) -> float | None:
        return None

    @property
    def triples(self) -> int:
        return self._num_triples

    @property
    def entities(self) -> int:
        """Number of heads and tails, without RDF literals."""
        return self._num_entities

    @property
    def num_nodes(self) -> int:
        """Number of heads and tails, with RDF literals; they are numbered from 0 on."""
        return len(self._nodes)

    def nodes(self) -> Iterator[tuple[str, Item]]:
        """(label, item) for every label of every head and tail."""
        return self._nodes.labelled()

    def numbers(self, ids: Iterable[str]) -> Numbers:
        """The distinct numbers of nodes, ascending; unknown ids are skipped."""
        return np.unique(np.array(_known(map(self._nodes.number, ids)), self._numbered_by))

    def side(self, *, inverse: bool) -> Side:
        """The triples by head, or by tail if `inverse`."""
        return self._in if inverse else self._out

    @property
    def terms(self) -> tuple[Terms, Terms]:
        """The nodes, and the relations."""
        return self._nodes, self._relation_terms

    def links(self) -> Iterable[tuple[int, Item]]:
        """The relations by number, ascending."""
        return enumerate(self._relations)

    def with_more(self, than: Mapping[int, int]) -> set[int]:
        """The relations, by number, that more triples have than `than` says."""
        return self.sides[0].with_more(than)

    def links_named(self, *names: str) -> list[int]:
        """The numbers of relations, given by id or label."""
        ids = (id_ for name in names for id_ in resolved_name(self.resolve_relation, name))
        return sorted(set(_known(map(self._relation_terms.number, ids))))

    def times_of(self, edge: int) -> Sequence[str]:
        """The times of a fact, given by its position."""
        return self._times.of(edge) if self._times else ()

    def id_at(self, node: int) -> str:
        """The id of a node, given by number."""
        return self._nodes.id_of(node)

    def label_at(self, node: int) -> str:
        return self._nodes.item(node).label

    def item_at(self, node: int) -> Item:
        return self._nodes.item(node)

    def relation_at(self, link: int) -> Item:
        return self._relations[link]

    def edge(self, head: str, relation: str, tail: str) -> int | None:
        """The position of a triple, given by ids, among all triples; None if there is no such triple."""
        node, neighbour = self._nodes.number(head), self._nodes.number(tail)
        link = self._relation_terms.number(relation)
        if node is None or neighbour is None or link is None:
            return None
        return self._out.edge(node, link, neighbour)

    def resolve_entity(self, name: str) -> tuple[str, ...]:
        return self._nodes.resolve(name) or self._nodes.resolve(as_stored(name))

    def resolve_relation(self, name: str) -> tuple[str, ...]:
        return self._relation_terms.resolve(name)

    def item(self, id_: str) -> Item | None:
        node = self._nodes.number(id_)
        if node is not None:
            return self._nodes.item(node)
        relation = self._relation_terms.number(id_)
        return None if relation is None else self._relations[relation]

    def items(self, ids: Sequence[str]) -> Mapping[str, Item]:
        return {id_: item for id_ in ids if (item := self.item(id_)) is not None}

    def named(self, names: Sequence[str], *, limit: int) -> Mapping[str, tuple[Item, ...]]:
        ids = {name: self.resolve_entity(name)[:limit] for name in names}
        return {name: tuple(self.items(found).values()) for name, found in ids.items() if found}

    def relations(self) -> Sequence[Item]:
        return self._relations

    def types(self) -> Sequence[Item]:
        return [self._nodes.item(node) for node in self._types]

    @cached_property
    def type_relations(self) -> tuple[str, ...]:
        return tuple(item.id for item in self.relations() if self.rules.states_type(item.id))

    @cached_property
    def type_links(self) -> list[int]:
        """The numbers of `type_relations`."""
        return _known(map(self._relation_terms.number, self.type_relations))

    def type_numbers(self) -> Sequence[int]:
        """The numbers of `types`."""
        return self._types

    def adjacent(self, nodes: Sequence[str]) -> frozenset[str]:
        found: set[int] = set()
        for node in _known(map(self._nodes.number, nodes)):
            found.update(self._out.all_neighbours(node), self._in.all_neighbours(node))
        return frozenset(map(self._nodes.id_of, found))

    def tail_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return self._relations_page(self._out, entities, limit, offset)

    def head_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return self._relations_page(self._in, entities, limit, offset)

    def tail_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return self._entities_page(self._out, entities, relations, limit, offset)

    def head_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return self._entities_page(self._in, entities, relations, limit, offset)

    def follow(
        self,
        entities: Sequence[str],
        steps: Sequence[PathStep],
        *,
        limit: int,
        offset: int = 0,
        returning: bool = False,
    ) -> Walk:
        starts = self.numbers(entities)
        hops = [Reached.at(starts)]
        for number, step in enumerate(steps):
            side = self._in if step.inverse else self._out
            links = _known(map(self._relation_terms.number, step.relations))
            found = spread(side, hops[-1].nodes, links, MAX_FRONTIER + len(starts))
            if number and not returning:
                found = found.without(starts)
            hops.append(found.first(MAX_FRONTIER))
        ends = hops[-1].nodes
        page, surrounded = ends[offset : offset + limit], ends[:MAX_SURROUNDED]
        item = self._nodes.item
        return Walk(
            Page(tuple(map(item, page.tolist())), len(ends)),
            tuple(tuple(item(node).id for node in chain) for chain in vias(hops, page[:MAX_VIAS]).tolist()),
            tuple(self._relations[link] for link in relations_among(self._out, surrounded)),
            tuple(self._relations[link] for link in relations_among(self._in, surrounded)),
            all(hop.complete for hop in hops),
        )

    def members(self, form: Expression, *, limit: int, offset: int = 0, returning: bool = False) -> Page:
        found, complete = self._forms.members(form, () if returning else entities(form))
        items = tuple(map(self.item_at, found[offset : offset + limit].tolist()))
        return Page(items, len(found), complete)

    def contains(self, form: Expression, node: Entity | Literal, *, returning: bool = False) -> bool:
        return self._forms.contains(form, node, () if returning else entities(form))

    def survey(
        self, of: Expression | Sequence[str], topics: Sequence[str] = (), *, returning: bool = False
    ) -> Survey:
        if isinstance(of, Sequence):
            return self._surveyor.survey_nodes(self.numbers(of))
        return self._surveyor.survey(of, topics, returning=returning)

    def holders(self, relation: str, *, inverse: bool = False, limit: int) -> Sequence[str]:
        return self._forms.holders(relation, inverse=inverse, limit=limit)

    def written_as(self, relation: str) -> str | None:
        return self._forms.written_as(relation)

    def _relations_page(self, side: Side, entities: Sequence[str], limit: int, offset: int) -> Page:
        nodes = _known(map(self._nodes.number, entities))
        found = _union([side.relations_of(node) for node in nodes])
        return Page(tuple(self._relations[r] for r in found[offset : offset + limit]), len(found))

    def _entities_page(
        self, side: Side, entities: Sequence[str], relations: Sequence[str], limit: int, offset: int
    ) -> Page:
        nodes = _known(map(self._nodes.number, entities))
        links = _known(map(self._relation_terms.number, relations))
        found = _union([side.neighbours(node, link) for node in nodes for link in links])
        page, item = found[offset : offset + limit], self._nodes.item
        if self._times:
            return Page(tuple(self._dated(side, nodes, links, other) for other in page), len(found))
        return Page(tuple(map(item, page)), len(found))

    def _dated(self, side: Side, nodes: Sequence[int], links: Sequence[int], other: int) -> Item:
        """An item with the times of all facts that lead to it."""
        times: set[str] = set()
        for node in nodes:
            head, tail = (node, other) if side is self._out else (other, node)
            for link in links:
                edge = self._out.edge(head, link, tail)
                if edge is not None:
                    times.update(self._times.of(edge))
        item = self._nodes.item(other)
        return DatedItem(item.id, item.label, tuple(sorted(times))) if times else item


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [number for number in numbers if number is not None]


def _union(runs: Sequence[memoryview]) -> memoryview | Sequence[int]:
    """The distinct numbers of sorted runs, ascending; a single run is returned without a copy."""
    if len(runs) == 1:
        return runs[0]
    if not runs:
        return ()
    return np.unique(np.concatenate([np.asarray(run) for run in runs])).data

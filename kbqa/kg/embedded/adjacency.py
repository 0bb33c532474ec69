"""One-hop look-ups in a memory-mapped index on disk.

A look-up costs a few array accesses, independent of an entity's degree and the graph's
size; a page costs time proportional to its length. `indexing` writes and describes the index.
"""

from __future__ import annotations

import json
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np

from kbqa.kg.actions import DatedItem, Item
from kbqa.kg.embedded.indexing import as_stored
from kbqa.kg.embedded.members import FormIndex
from kbqa.kg.embedded.surveying import Surveyor
from kbqa.kg.embedded.tables import StringTable, map_numbers
from kbqa.kg.embedded.walks import (
    Numbers,
    Ranges,
    Reached,
    WalkedSide,
    bisected,
    concatenated,
    relations_among,
    spread,
    vias,
)
from kbqa.kg.forms import resolved_name
from kbqa.kg.store import MAX_FRONTIER, MAX_SURROUNDED, MAX_VIAS, HubLimits, Page, PathStep, Survey, Walk
from kbqa.logical_forms.algebra import Expression, entities
from kbqa.logical_forms.compiler import FREEBASE

Columns = tuple[Numbers, Numbers, Numbers]

# Entries per cache; look-ups repeat.
_KEPT = 1 << 16


class Adjacency:
    """The triples of a graph, indexed both ways.

    Nothing writes the index while it is open, so any number of threads may read it.

    Args:
        directory: written by `IndexBuilder.write`.
    """

    def __init__(self, directory: Path) -> None:
        self._nodes = _Terms(directory, "nodes", "names", "labels")
        relations = _Terms(directory, "relations", "relation_names", "relation_labels")
        self._relations = tuple(map(relations.item, range(len(relations))))
        self._relation_terms = relations
        self.sides = MappedSide(directory, "out"), MappedSide(directory, "in")
        self._out: Side
        self._in: Side
        self._out, self._in = self.sides
        self._types = map_numbers(directory / "types.npy")
        self._times = _Times(directory)
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
        return np.unique(np.array(_known(map(self._nodes.number, ids)), np.int64))

    def side(self, *, inverse: bool) -> Side:
        """The triples by head, or by tail if `inverse`."""
        return self._in if inverse else self._out

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

    def survey(
        self, of: Expression | Sequence[str], topics: Sequence[str] = (), *, returning: bool = False
    ) -> Survey:
        if isinstance(of, Sequence):
            return self._surveyor.survey_nodes(self.numbers(of), returning=returning)
        return self._surveyor.survey(of, topics, returning=returning)

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


class _Terms:
    """Ids and labels of nodes or relations by number; numbers are in the order of labels, then ids."""

    def __init__(self, directory: Path, ids: str, names: str, labels: str) -> None:
        self._ids, self._names = StringTable(directory, ids), StringTable(directory, names)
        self._owners = map_numbers(directory / f"{names}.owners.npy")
        preferred = map_numbers(directory / f"{labels}.npy")
        # No bound methods: they would form a reference cycle and keep an unused graph open until collected.
        self.item: Callable[[int], Item] = lru_cache(_KEPT)(partial(_item, self._ids, self._names, preferred))
        self._number: Callable[[str], int] = lru_cache(_KEPT)(partial(_number, self._ids))

    def __len__(self) -> int:
        return len(self._ids)

    def number(self, id_: str) -> int | None:
        try:
            return self._number(id_)
        except KeyError:
            return None

    def id_of(self, number: int) -> str:
        return self._ids[number]

    def resolve(self, name: str) -> tuple[str, ...]:
        """`name` itself if it is an id, else all ids with that label, sorted."""
        if self.number(name) is not None:
            return (name,)
        return self.labelled_by(name)

    def labelled_by(self, label: str) -> tuple[str, ...]:
        """All ids with a label, sorted."""
        places = self._names.find(label)
        return tuple(sorted(self._ids[self._owners[place]] for place in places)) if places else ()

    def labelled(self) -> Iterator[tuple[str, Item]]:
        """(label, item) for every label; an item without a label yields its id."""
        for number in range(len(self._ids)):
            item = self.item(number)
            if item.label == item.id:
                yield item.id, item
        for place in range(len(self._names)):
            yield self._names[place], self.item(self._owners[place])


def _item(ids: StringTable, names: StringTable, preferred: memoryview, number: int) -> Item:
    id_, name = ids[number], preferred[number]
    return Item(id_, names[name] if name < len(names) else id_)


def _number(ids: StringTable, id_: str) -> int:
    found = ids.find(id_)
    if not found:
        # Raised, because lru_cache does not store exceptions: unknown ids are unbounded.
        raise KeyError(id_)
    return found[0]


class Side(WalkedSide, Protocol):
    """Triples indexed by the node at one end; nodes and relations are numbers."""

    def all_neighbours(self, node: int) -> memoryview:
        """Neighbours by any relation; one reached by several relations occurs several times."""
        ...

    def columns(self, nodes: Numbers) -> Columns:
        """(node, relation, neighbour) columns of all triples with one of `nodes` at this end."""
        ...

    def degrees(self, nodes: Numbers) -> Numbers:
        """The number of triples with each node at this end."""
        ...

    def edge(self, node: int, relation: int, neighbour: int) -> int | None:
        """The position of a triple among all triples of the graph; None if it is not on this side."""
        ...


class MappedSide:
    """A `Side` on disk: one group per (node, relation), with its neighbours."""

    def __init__(self, directory: Path, side: str) -> None:
        self._groups = map_numbers(directory / f"{side}.groups.npy")
        self._relations = map_numbers(directory / f"{side}.relations.npy")
        self._starts = map_numbers(directory / f"{side}.starts.npy")
        self._neighbours = map_numbers(directory / f"{side}.neighbours.npy")

    def relations_of(self, node: int) -> memoryview:
        return self._relations[self._groups[node] : self._groups[node + 1]]

    def nodes(self) -> Numbers:
        """The nodes that have a triple at this end, ascending."""
        return np.flatnonzero(np.diff(np.asarray(self._groups).astype(np.int64)))

    def nodes_with(self, relations: Sequence[int]) -> Numbers:
        """The nodes that have a triple with one of the relations at this end, ascending."""
        groups = np.flatnonzero(np.isin(np.asarray(self._relations), relations))
        # A node without groups begins where the next one does.
        return np.unique(np.searchsorted(np.asarray(self._groups), groups, side="right") - 1)

    def neighbours(self, node: int, relation: int) -> memoryview:
        start, end = self._group(node, relation)
        return self._neighbours[start:end]

    def all_neighbours(self, node: int) -> memoryview:
        start, end = self._starts[self._groups[node]], self._starts[self._groups[node + 1]]
        return self._neighbours[start:end]

    def columns(self, nodes: Numbers) -> Columns:
        groups, starts = np.asarray(self._groups), np.asarray(self._starts)
        first, last = groups[nodes].astype(np.int64), groups[nodes + 1].astype(np.int64)
        group = concatenated(first, last)
        first_edge, last_edge = starts[group].astype(np.int64), starts[group + 1].astype(np.int64)
        sizes = last_edge - first_edge
        return (
            np.repeat(np.repeat(nodes, last - first), sizes),
            np.repeat(np.asarray(self._relations)[group], sizes),
            np.asarray(self._neighbours)[concatenated(first_edge, last_edge)],
        )

    def degrees(self, nodes: Numbers) -> Numbers:
        starts, groups = np.asarray(self._starts), self.listed(nodes)
        return starts[groups.end].astype(np.int64) - starts[groups.first].astype(np.int64)

    def columns_at(self, edges: Numbers) -> Columns:
        """(node, relation, neighbour) columns of the triples at positions `edges`."""
        group = np.searchsorted(np.asarray(self._starts), edges, side="right") - 1
        node = np.searchsorted(np.asarray(self._groups), group, side="right") - 1
        return node, np.asarray(self._relations)[group], np.asarray(self._neighbours)[edges]

    def runs(self, nodes: Numbers, relation: int) -> Ranges:
        relations, starts = np.asarray(self._relations), np.asarray(self._starts)
        groups = self.listed(nodes)
        group = bisected(relations, groups, relation)
        is_there = group < groups.end
        is_there[is_there] = relations[group[is_there]] == relation
        first_edge = starts[group].astype(np.int64)
        return Ranges(first_edge, np.where(is_there, starts[group + is_there], first_edge))

    def neighbours_at(self, places: Numbers) -> Numbers:
        return np.asarray(self._neighbours)[places]

    def listed(self, nodes: Numbers) -> Ranges:
        groups = np.asarray(self._groups)
        return Ranges(groups[nodes].astype(np.int64), groups[nodes + 1].astype(np.int64))

    def relations_at(self, places: Numbers) -> Numbers:
        return np.asarray(self._relations)[places]

    def edge(self, node: int, relation: int, neighbour: int) -> int | None:
        start, end = self._group(node, relation)
        place = bisect_left(self._neighbours, neighbour, start, end)
        return place if place < end and self._neighbours[place] == neighbour else None

    def _group(self, node: int, relation: int) -> tuple[int, int]:
        first, end = self._groups[node], self._groups[node + 1]
        group = bisect_left(self._relations, relation, first, end)
        if group == end or self._relations[group] != relation:
            return 0, 0
        return self._starts[group], self._starts[group + 1]


class MemorySide:
    """A `Side` in memory, for a subset of a graph's triples.

    Args:
        columns: (node, relation, neighbour) of each triple, in any order, without duplicates.
        whole: the same side of the whole graph.
    """

    def __init__(self, columns: Columns, whole: MappedSide) -> None:
        nodes, relations, neighbours = columns
        order = np.lexsort((neighbours, relations, nodes))
        self._nodes, self._relations, self._neighbours = (
            np.ascontiguousarray(column[order]).data for column in columns
        )
        self._whole = whole

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self) -> Numbers:
        return np.unique(self._nodes)

    def relations(self) -> Numbers:
        return np.unique(self._relations)

    def relations_of(self, node: int) -> memoryview:
        return np.unique(self._relations[self._run(node)]).data

    def neighbours(self, node: int, relation: int) -> memoryview:
        run = self._run(node)
        start = bisect_left(self._relations, relation, run.start, run.stop)
        return self._neighbours[start : bisect_right(self._relations, relation, start, run.stop)]

    def all_neighbours(self, node: int) -> memoryview:
        return self._neighbours[self._run(node)]

    def runs(self, nodes: Numbers, relation: int) -> Ranges:
        relations, rows = np.asarray(self._relations), self.listed(nodes)
        return Ranges(bisected(relations, rows, relation), bisected(relations, rows, relation, right=True))

    def columns(self, nodes: Numbers) -> Columns:
        first, end = self.listed(nodes)
        rows = concatenated(first, end)
        relations, neighbours = np.asarray(self._relations)[rows], np.asarray(self._neighbours)[rows]
        return np.repeat(nodes, end - first), relations, neighbours

    def degrees(self, nodes: Numbers) -> Numbers:
        first, end = self.listed(nodes)
        return end - first

    def neighbours_at(self, places: Numbers) -> Numbers:
        return np.asarray(self._neighbours)[places]

    def listed(self, nodes: Numbers) -> Ranges:
        column = np.asarray(self._nodes)
        return Ranges(np.searchsorted(column, nodes), np.searchsorted(column, nodes, side="right"))

    def relations_at(self, places: Numbers) -> Numbers:
        return np.asarray(self._relations)[places]

    def edge(self, node: int, relation: int, neighbour: int) -> int | None:
        found = self.neighbours(node, relation)
        place = bisect_left(found, neighbour)
        is_here = place < len(found) and found[place] == neighbour
        return self._whole.edge(node, relation, neighbour) if is_here else None

    def _run(self, node: int) -> slice:
        start = bisect_left(self._nodes, node)
        return slice(start, bisect_right(self._nodes, node, start))


class _Times:
    """The times of dated facts, by position of the edge."""

    def __init__(self, directory: Path) -> None:
        self._edges = map_numbers(directory / "dated.edges.npy")
        self._starts = map_numbers(directory / "dated.starts.npy")
        self._times = StringTable(directory, "times")

    def __len__(self) -> int:
        return len(self._edges)

    def of(self, edge: int) -> list[str]:
        place = bisect_left(self._edges, edge)
        if place == len(self._edges) or self._edges[place] != edge:
            return []
        return [self._times[time] for time in range(self._starts[place], self._starts[place + 1])]


def _known(numbers: Iterable[int | None]) -> list[int]:
    return [number for number in numbers if number is not None]


def _union(runs: Sequence[memoryview]) -> memoryview | Sequence[int]:
    """The distinct numbers of sorted runs, ascending; a single run is returned without a copy."""
    if len(runs) == 1:
        return runs[0]
    if not runs:
        return ()
    return np.unique(np.concatenate([np.asarray(run) for run in runs])).data

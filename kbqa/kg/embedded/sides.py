"""The triples of a graph, indexed by the node at one end: on disk, and in memory for a part of them."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from kbqa.kg.embedded.tables import map_numbers
from kbqa.kg.embedded.walks import Numbers, Ranges, WalkedSide, bisected, concatenated

_COUNTED = 1 << 20  # groups that are counted at a time

Columns = tuple[Numbers, Numbers, Numbers]


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

    def nodes_with(self, relations: Sequence[int]) -> Numbers:
        """The nodes that have a triple with one of the relations at this end, ascending."""
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
        # Triples by relation in the first groups: to count all takes half a second for 20 million triples.
        self._counts, self._num_counted = np.zeros(0, np.int64), 0
        self._counting = threading.Lock()

    @property
    def num_edges(self) -> int:
        return len(self._neighbours)

    @property
    def num_groups(self) -> int:
        """The number of (node, relation) pairs."""
        return len(self._relations)

    def with_more(self, than: Mapping[int, int]) -> set[int]:
        """The relations that more triples have than `than` says. Counts no further than it must."""
        with self._counting:
            while True:
                found = {relation for relation, few in than.items() if self._counted(relation) > few}
                if len(found) == len(than) or self._num_counted == self.num_groups:
                    return found
                self._count_on()

    def _counted(self, relation: int) -> int:
        return int(self._counts[relation]) if relation < len(self._counts) else 0

    def _count_on(self) -> None:
        first, last = self._num_counted, min(self._num_counted + _COUNTED, self.num_groups)
        sizes = np.diff(np.asarray(self._starts[first : last + 1]).astype(np.int64))
        more = np.bincount(np.asarray(self._relations[first:last]), sizes, len(self._counts)).astype(np.int64)
        more[: len(self._counts)] += self._counts
        self._counts, self._num_counted = more, last

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

    def nodes_with(self, relations: Sequence[int]) -> Numbers:
        return np.unique(np.asarray(self._nodes)[np.isin(np.asarray(self._relations), relations)])

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

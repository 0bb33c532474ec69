"""Paths through an index: sets of node numbers, a hop at a time.

A hop costs time with the edges that it crosses, whatever the degrees of the nodes are, and
both are bounded: of a set that is too large the first nodes are kept, in the order of labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.integer[Any]]

# Crossed in a hop, and relations of nodes looked at, at most: some ten milliseconds.
MAX_EDGES = 1 << 19
_FEW, _FEW_EDGES = 128, 512


class Ranges(NamedTuple):
    """Places from `first` to before `end`, a range for each of several nodes."""

    first: Numbers
    end: Numbers


class WalkedSide(Protocol):
    """Triples by the node at one end, for many nodes at once."""

    def runs(self, nodes: Numbers, relation: int) -> Ranges:
        """Where the neighbours of each node by a relation stand, ascending in each range."""
        ...

    def neighbours_at(self, places: Numbers) -> Numbers: ...

    def listed(self, nodes: Numbers) -> Ranges:
        """Where the relations of each node stand."""
        ...

    def relations_at(self, places: Numbers) -> Numbers: ...

    def neighbours(self, node: int, relation: int) -> memoryview: ...

    def relations_of(self, node: int) -> memoryview: ...


class Reached(NamedTuple):
    """A set of nodes, ascending; the node before each, the first of several; and whether that is all."""

    nodes: Numbers
    sources: Numbers
    complete: bool = True

    @classmethod
    def at(cls, nodes: Numbers) -> Self:
        """The set before the first hop."""
        return cls(nodes, nodes)

    def without(self, nodes: Numbers) -> Self:
        """What is not one of `nodes`; unchanged if nothing else is there."""
        if not len(nodes):
            return self
        kept = self.nodes != nodes[np.minimum(np.searchsorted(nodes, self.nodes), len(nodes) - 1)]
        return self._replace(nodes=self.nodes[kept], sources=self.sources[kept]) if kept.any() else self

    def first(self, count: int) -> Self:
        if len(self.nodes) <= count:
            return self
        return self._replace(nodes=self.nodes[:count], sources=self.sources[:count], complete=False)


def spread(side: WalkedSide, nodes: Numbers, relations: Sequence[int], most: int) -> Reached:
    """What one of several relations leads to from one of several nodes.

    Args:
        most: nodes that are wanted. What is found beyond them may lack some; they are the first.
    """
    if len(nodes) * len(relations) <= _FEW:
        reached = _spread_few(side, nodes, relations, most)
        if reached is not None:
            return reached
    runs = [side.runs(nodes, relation) for relation in relations]
    first = np.concatenate([run.first for run in runs])
    # The first of the union are among the first of each run.
    end = np.minimum(np.concatenate([run.end for run in runs]), first + most + 1)
    sources = np.tile(nodes, len(runs))
    there = np.flatnonzero(first < end)
    fitting = there[: fitting_ranges(first[there], end[there])]
    first, end, sources = first[fitting], end[fitting], sources[fitting]
    neighbours = side.neighbours_at(concatenated(first, end))
    found, places = np.unique(neighbours, return_index=True)
    # Of a node that was found from several, its first place is in the first run.
    before = np.repeat(sources, end - first)[places]
    return Reached(found, before, len(fitting) == len(there)).first(most)


def _spread_few(side: WalkedSide, nodes: Numbers, relations: Sequence[int], most: int) -> Reached | None:
    """As `spread`, without arrays, which cost more than few edges; None if there are many."""
    found: dict[int, int] = {}
    crossed = 0
    for relation in relations:
        for node in nodes.tolist():
            run = side.neighbours(node, relation)
            crossed += len(run)
            if crossed > _FEW_EDGES:
                return None
            for neighbour in run:
                found.setdefault(neighbour, node)
    ordered = sorted(found)
    sources = np.fromiter(map(found.__getitem__, ordered), np.int64, len(ordered))
    return Reached(np.array(ordered, np.int64), sources).first(most)


def relations_among(side: WalkedSide, nodes: Numbers) -> list[int]:
    """The relations of all the nodes, ascending, each once; of the first nodes if it takes too long."""
    first, end = side.listed(nodes)
    if len(nodes) <= _FEW and int((end - first).sum()) <= _FEW_EDGES:
        return sorted(set[int]().union(*map(side.relations_of, nodes.tolist())))
    fitting = fitting_ranges(first, end)
    among: list[int] = np.unique(side.relations_at(concatenated(first[:fitting], end[:fitting]))).tolist()
    return among


def bisected(column: Numbers, ranges: Ranges, value: int, *, right: bool = False) -> Numbers:
    """Where a value belongs in each range of a column that ascends within it: `bisect` of them all."""
    low, high = ranges
    last = len(column) - 1
    while (searched := low < high).any():
        middle = (low + high) >> 1
        found = column[np.minimum(middle, last)]
        above = searched & ((found <= value) if right else (found < value))
        low, high = np.where(above, middle + 1, low), np.where(searched & ~above, middle, high)
    return low


def fitting_ranges(first: Numbers, end: Numbers) -> int:
    """How many ranges, from the first on, are `MAX_EDGES` places together; one at least."""
    return max(int(np.searchsorted(np.cumsum(end - first), MAX_EDGES, side="right")), 1)


def concatenated(first: Numbers, end: Numbers) -> Numbers:
    """The numbers of all ranges, one after the other."""
    sizes = end - first
    offsets = first - np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)[:-1]])[: len(sizes)]
    return np.repeat(offsets, sizes) + np.arange(int(sizes.sum()))


def vias(hops: Sequence[Reached], nodes: Numbers) -> Numbers:
    """The nodes through which nodes of the last hop were reached, from the start on: [len(nodes), hops].

    Args:
        hops: the set at the start, then that after each hop.
    """
    chains = np.empty((len(nodes), len(hops) - 1), np.int64)
    for number in range(len(hops) - 1, 0, -1):
        nodes = hops[number].sources[np.searchsorted(hops[number].nodes, nodes)]
        chains[:, number - 1] = nodes
    return chains

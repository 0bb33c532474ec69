"""Paths through an index: sets of node numbers, expanded one hop at a time.

A hop takes time proportional to the edges that it crosses, independent of the nodes' degrees.
Edges and nodes are bounded: of a set that is too large, the first nodes by label are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.integer[Any]]

# Bound on the edges crossed in a hop, and on the relations read for a set: some ten milliseconds.
MAX_EDGES = 1 << 19
# Up to these sizes, plain Python is faster than arrays.
_FEW, _FEW_EDGES = 128, 512


class Ranges(NamedTuple):
    """Half-open ranges of positions from `first` to `end`, one per node."""

    first: Numbers
    end: Numbers


class WalkedSide(Protocol):
    """Triples indexed by the node at one end, read for many nodes at once."""

    def runs(self, nodes: Numbers, relation: int) -> Ranges:
        """The positions of each node's neighbours by a relation; neighbours ascend in each range."""
        ...

    def neighbours_at(self, places: Numbers) -> Numbers: ...

    def listed(self, nodes: Numbers) -> Ranges:
        """The positions of each node's relations."""
        ...

    def relations_at(self, places: Numbers) -> Numbers: ...

    def neighbours(self, node: int, relation: int) -> memoryview: ...

    def relations_of(self, node: int) -> memoryview: ...


class Reached(NamedTuple):
    """A set of nodes, ascending, with the first source node of each.

    `complete` is False if a bound left nodes out.
    """

    nodes: Numbers
    sources: Numbers
    complete: bool = True

    @classmethod
    def at(cls, nodes: Numbers) -> Self:
        """The start set, before the first hop."""
        return cls(nodes, nodes)

    def without(self, nodes: Numbers) -> Self:
        """The set without `nodes`; unchanged if nothing would be left."""
        if not len(nodes):
            return self
        kept = self.nodes != nodes[np.minimum(np.searchsorted(nodes, self.nodes), len(nodes) - 1)]
        return self._replace(nodes=self.nodes[kept], sources=self.sources[kept]) if kept.any() else self

    def first(self, count: int) -> Self:
        if len(self.nodes) <= count:
            return self
        return self._replace(nodes=self.nodes[:count], sources=self.sources[:count], complete=False)


def spread(side: WalkedSide, nodes: Numbers, relations: Sequence[int], most: int) -> Reached:
    """All nodes that any of `relations` leads to from any of `nodes`.

    Args:
        most: bound on the nodes returned; the first ones are kept.
    """
    if len(nodes) * len(relations) <= _FEW:
        reached = _spread_few(side, nodes, relations, most)
        if reached is not None:
            return reached
    runs = [side.runs(nodes, relation) for relation in relations]
    first = np.concatenate([run.first for run in runs])
    # The first `most` nodes of the union are among the first `most` of each run.
    end = np.minimum(np.concatenate([run.end for run in runs]), first + most + 1)
    sources = np.tile(nodes, len(runs))
    there = np.flatnonzero(first < end)
    fitting = there[: fitting_ranges(first[there], end[there])]
    first, end, sources = first[fitting], end[fitting], sources[fitting]
    neighbours = side.neighbours_at(concatenated(first, end))
    found, places = np.unique(neighbours, return_index=True)
    # If a node has several sources, its first position is in the first run.
    before = np.repeat(sources, end - first)[places]
    return Reached(found, before, len(fitting) == len(there)).first(most)


def _spread_few(side: WalkedSide, nodes: Numbers, relations: Sequence[int], most: int) -> Reached | None:
    """Like `spread`, but without arrays, which is faster for few edges; None if there are many."""
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
    sources = np.array([found[node] for node in ordered], nodes.dtype)
    return Reached(np.array(ordered, nodes.dtype), sources).first(most)


def relations_among(side: WalkedSide, nodes: Numbers) -> list[int]:
    """The distinct relations of the nodes, ascending; of the first nodes only if there are too many."""
    first, end = side.listed(nodes)
    if len(nodes) <= _FEW and int((end - first).sum()) <= _FEW_EDGES:
        return sorted(set[int]().union(*map(side.relations_of, nodes.tolist())))
    fitting = fitting_ranges(first, end)
    among: list[int] = np.unique(side.relations_at(concatenated(first[:fitting], end[:fitting]))).tolist()
    return among


def bisected(column: Numbers, ranges: Ranges, value: int, *, right: bool = False) -> Numbers:
    """The `bisect` position of a value in each range of a column, which must ascend in each range."""
    low, high = ranges
    last = len(column) - 1
    while (searched := low < high).any():
        middle = (low + high) >> 1
        found = column[np.minimum(middle, last)]
        above = searched & ((found <= value) if right else (found < value))
        low, high = np.where(above, middle + 1, low), np.where(searched & ~above, middle, high)
    return low


def fitting_ranges(first: Numbers, end: Numbers) -> int:
    """How many of the first ranges have at most `MAX_EDGES` positions in total; at least one."""
    return max(int(np.searchsorted(np.cumsum(end - first), MAX_EDGES, side="right")), 1)


def concatenated(first: Numbers, end: Numbers) -> Numbers:
    """The numbers in all ranges, concatenated."""
    sizes = end - first
    offsets = first - np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)[:-1]])[: len(sizes)]
    return np.repeat(offsets, sizes) + np.arange(int(sizes.sum()))


def vias(hops: Sequence[Reached], nodes: Numbers) -> Numbers:
    """The chain of nodes, from the start on, by which each node of the last hop was reached.

    Args:
        hops: the start set, then the set after each hop.

    Returns:
        [len(nodes), number of hops], without the nodes themselves.
    """
    chains = np.empty((len(nodes), len(hops) - 1), hops[0].nodes.dtype)
    for number in range(len(hops) - 1, 0, -1):
        nodes = hops[number].sources[np.searchsorted(hops[number].nodes, nodes)]
        chains[:, number - 1] = nodes
    return chains

"""One side of a graph that changed: a mapped index, with the groups of the nodes that changed.

Numbers of the base stay valid. Numbers of added nodes and relations lie between two of them and have
fractions, so that arrays which contain them are of floats (`overlay`).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from cachetools import LRUCache

from kbqa.kg.embedded.sides import Columns, MappedSide
from kbqa.kg.embedded.walks import Numbers, Ranges

Number = float  # whole, for what the base has
Edge = tuple[Number, Number, Number]  # node at this end, relation, neighbour

_EMPTY = np.empty(0).data
_KEPT_NEIGHBOURS = 1 << 22  # in merged groups that are kept, at eight bytes each


@dataclass(slots=True)
class _Group:
    """A (node, relation) whose neighbours changed.

    Attributes:
        size: the number of its neighbours now.
        first: position of its first neighbour, behind those of the base.
    """

    removed: list[Number] = field(default_factory=list)
    added: list[Number] = field(default_factory=list)
    size: int = 0
    first: int = 0


class ChangedSide:
    """A `Side` over a mapped one.

    Args:
        removed: triples of the base that the graph has no more.
        added: triples that the base has not.
        origins: number of a node that was moved → its number in the base.
    """

    def __init__(
        self,
        base: MappedSide,
        num_nodes: int,
        removed: Iterable[Edge],
        added: Iterable[Edge],
        origins: Mapping[Number, int],
    ) -> None:
        self._base, self._num_nodes, self._origins = base, num_nodes, origins
        self._groups: dict[tuple[Number, Number], _Group] = {}
        changed: dict[Number, set[Number]] = {}
        for node, relation, neighbour in removed:
            self._groups.setdefault((node, relation), _Group()).removed.append(neighbour)
            changed.setdefault(node, set()).add(relation)
        for node, relation, neighbour in added:
            self._groups.setdefault((node, relation), _Group()).added.append(neighbour)
            changed.setdefault(node, set()).add(relation)
        self._listed: dict[Number, list[Number]] = {}
        self._degrees: dict[Number, int] = {}
        place = base.num_edges
        for (node, relation), group in self._groups.items():
            group.added.sort()
            group.size = len(self._below(node, relation)) - len(group.removed) + len(group.added)
            group.first = place
            place += group.size
        for node, relations in changed.items():
            kept = set[Number](base.relations_of(int(node)) if self._is_below(node) else ()) - relations
            kept.update(relation for relation in relations if self._groups[node, relation].size)
            self._listed[node] = sorted(kept)
            self._degrees[node] = sum(
                self._groups[node, r].size if (node, r) in self._groups else len(self._below(node, r))
                for r in kept
            )
        self._nodes = np.array(sorted(changed), np.float64)
        self._starts = np.array([group.first for group in self._groups.values()], np.int64)
        self._in_order = list(self._groups)
        # The relations of all changed nodes, behind those of the base.
        lists = [self._listed[node] for node in self._nodes.tolist()]
        self._all_listed = np.array([relation for listed in lists for relation in listed], np.float64)
        bounds = np.cumsum([0, *map(len, lists)])
        self._list_bounds = dict(
            zip(
                self._nodes.tolist(), zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True), strict=True
            )
        )
        self._merged: LRUCache[tuple[Number, Number], memoryview] = LRUCache(
            _KEPT_NEIGHBOURS, getsizeof=lambda found: min(len(found), _KEPT_NEIGHBOURS)
        )
        self._lock = threading.Lock()

    def neighbours(self, node: Number, relation: Number) -> memoryview:
        if (node, relation) not in self._groups:
            return self._below(node, relation)
        with self._lock:
            merged = self._merged.get((node, relation))
        if merged is None:
            merged = self._merge(node, relation)
            with self._lock:
                self._merged[node, relation] = merged
        return merged

    def relations_of(self, node: Number) -> Sequence[Number] | memoryview:
        listed = self._listed.get(node)
        if listed is not None:
            return listed
        return self._base.relations_of(int(node)) if self._is_below(node) else _EMPTY

    def all_neighbours(self, node: Number) -> memoryview:
        if node not in self._listed:
            return self._base.all_neighbours(int(node)) if self._is_below(node) else _EMPTY
        runs = [np.asarray(self.neighbours(node, relation)) for relation in self._listed[node]]
        return np.concatenate(runs).data if runs else _EMPTY

    def nodes(self) -> Numbers:
        """The nodes that have a triple at this end, ascending."""
        there = [node for node, listed in self._listed.items() if listed]
        kept = np.setdiff1d(self._base.nodes(), self._nodes)
        found: Numbers = np.union1d(kept, np.array(there))
        return found

    def nodes_with(self, relations: Sequence[Number]) -> Numbers:
        """The nodes that have a triple with one of the relations at this end, ascending."""
        wanted = set(relations)
        there = [node for node, listed in self._listed.items() if not wanted.isdisjoint(listed)]
        below = self._base.nodes_with([int(relation) for relation in relations if relation == int(relation)])
        found: Numbers = np.union1d(np.setdiff1d(below, self._nodes), np.array(there))
        return found

    def columns(self, nodes: Numbers) -> Columns:
        changed = np.isin(nodes, self._nodes)
        parts = [self._base.columns(nodes[~changed & self._are_below(nodes)].astype(np.int64))]
        for node in nodes[changed].tolist():
            for relation in self._listed[node]:
                found = np.asarray(self.neighbours(node, relation))
                parts.append((np.full(len(found), node), np.full(len(found), relation), found))
        heads, links, tails = (np.concatenate(column) for column in zip(*parts, strict=True))
        return heads, links, tails

    def degrees(self, nodes: Numbers) -> Numbers:
        degrees = np.zeros(len(nodes), np.int64)
        below = self._are_below(nodes)
        degrees[below] = self._base.degrees(nodes[below].astype(np.int64))
        for place in np.flatnonzero(np.isin(nodes, self._nodes)).tolist():
            degrees[place] = self._degrees[float(nodes[place])]
        return degrees

    def runs(self, nodes: Numbers, relation: Number) -> Ranges:
        first, end = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
        below = self._are_below(nodes)
        if relation == int(relation) and below.any():
            found = self._base.runs(nodes[below].astype(np.int64), int(relation))
            first[below], end[below] = found.first, found.end
        for place in np.flatnonzero(np.isin(nodes, self._nodes)).tolist():
            group = self._groups.get((float(nodes[place]), relation))
            if group is not None:
                first[place], end[place] = group.first, group.first + group.size
        return Ranges(first, end)

    def neighbours_at(self, places: Numbers) -> Numbers:
        own = places >= self._base.num_edges
        if not own.any():
            return self._base.neighbours_at(places)
        # Its numbers have fractions, which only the sides of such a graph know.
        found = cast(Numbers, np.empty(len(places)))
        found[~own] = self._base.neighbours_at(places[~own])
        behind = np.flatnonzero(own)
        groups = np.searchsorted(self._starts, places[behind], side="right") - 1
        for number in np.unique(groups).tolist():
            these = behind[groups == number]
            merged = np.asarray(self.neighbours(*self._in_order[number]))
            found[these] = merged[places[these] - self._starts[number]]
        return found

    def listed(self, nodes: Numbers) -> Ranges:
        first, end = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
        below = self._are_below(nodes)
        found = self._base.listed(nodes[below].astype(np.int64))
        first[below], end[below] = found.first, found.end
        for place in np.flatnonzero(np.isin(nodes, self._nodes)).tolist():
            bounds = self._list_bounds[float(nodes[place])]
            first[place], end[place] = (self._base.num_groups + bound for bound in bounds)
        return Ranges(first, end)

    def relations_at(self, places: Numbers) -> Numbers:
        own = places >= self._base.num_groups
        if not own.any():
            return self._base.relations_at(places)
        # Its numbers have fractions, which only the sides of such a graph know.
        found = cast(Numbers, np.empty(len(places)))
        found[~own] = self._base.relations_at(places[~own])
        found[own] = self._all_listed[places[own] - self._base.num_groups]
        return found

    def edge(self, node: Number, relation: Number, neighbour: Number) -> int | None:
        """The position of a triple: that in the base, or behind all of the base for an added one."""
        origins = self._origins
        below = origins.get(node, node), relation, origins.get(neighbour, neighbour)
        group = self._groups.get((node, relation))
        if group is not None:
            found = self.neighbours(node, relation)
            place = bisect_left(found, neighbour)
            if place == len(found) or found[place] != neighbour:
                return None
            if not all(number == int(number) for number in below):
                return group.first + place
            stored = self._base.edge(*map(int, below))
            return group.first + place if stored is None else stored
        if not self._is_below(node) or not all(number == int(number) for number in below):
            return None
        return self._base.edge(*map(int, below))

    def _below(self, node: Number, relation: Number) -> memoryview:
        """The neighbours in the base."""
        if self._is_below(node) and relation == int(relation):
            return self._base.neighbours(int(node), int(relation))
        return _EMPTY

    def _merge(self, node: Number, relation: Number) -> memoryview:
        group = self._groups[node, relation]
        found = np.asarray(self._below(node, relation)).astype(np.float64)
        if group.removed:
            found = np.delete(found, np.searchsorted(found, sorted(group.removed)))
        if group.added:
            found = np.insert(found, np.searchsorted(found, group.added), group.added)
        return found.data

    def _is_below(self, node: Number) -> bool:
        return node == int(node) and 0 <= node < self._num_nodes

    def _are_below(self, nodes: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        below: np.ndarray[tuple[int], np.dtype[np.bool_]] = (nodes == np.floor(nodes)) & (nodes >= 0)
        return below

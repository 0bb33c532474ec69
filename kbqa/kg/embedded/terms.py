"""Ids, labels and times of a graph in memory-mapped files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

from kbqa.kg.actions import Item
from kbqa.kg.embedded.tables import StringTable, map_numbers

# Entries per cache; look-ups repeat.
_KEPT = 1 << 16


class Terms:
    """Ids and labels of nodes or relations by number; numbers are in the order of labels, then ids."""

    def __init__(self, directory: Path, ids: str, names: str, labels: str) -> None:
        self._ids, self._names = StringTable(directory, ids), StringTable(directory, names)
        self._owners = map_numbers(directory / f"{names}.owners.npy")
        self._preferred = preferred = map_numbers(directory / f"{labels}.npy")
        # No bound methods: they would form a reference cycle and keep an unused graph open until collected.
        self.item: Callable[[int], Item] = lru_cache(_KEPT)(partial(_item, self._ids, self._names, preferred))
        # The number of terms that come before a label and id.
        self.rank: Callable[[str, str], int] = lru_cache(_KEPT)(partial(_rank, len(self._ids), self.item))
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

    def names_of(self, number: int) -> list[str]:
        """The labels of a node or relation other than its id, the shown one first."""
        place = self._preferred[number]
        if place == len(self._names):
            return []
        # The names of one owner are stored together.
        first = end = place
        while first > 0 and self._owners[first - 1] == number:
            first -= 1
        while end < len(self._names) and self._owners[end] == number:
            end += 1
        return [self._names[other] for other in range(first, end)]

    def resolve(self, name: str) -> tuple[str, ...]:
        """`name` itself if it is an id, else all ids with that label, sorted."""
        if self.number(name) is not None:
            return (name,)
        return self.labelled_by(name)

    def labelled_by(self, label: str) -> tuple[str, ...]:
        """All ids with a label, sorted."""
        owners = self.owners_of(label)
        return tuple(sorted(map(self._ids.__getitem__, owners))) if owners else ()

    def owners_of(self, label: str) -> list[int]:
        """The numbers of all that have a label other than their id."""
        return [self._owners[place] for place in self._names.find(label)]

    def labelled(self) -> Iterator[tuple[str, Item]]:
        """(label, item) for every label; an item without a label yields its id."""
        for _, label, item in self.labelled_numbers():
            yield label, item

    def labelled_numbers(self) -> Iterator[tuple[int, str, Item]]:
        """Like `labelled`, with the number of each."""
        for _, label, number in self.labels():
            yield number, label, self.item(number)

    def labels(self) -> Iterator[tuple[int, str, int]]:
        """(place, label, number) for every label; places are ascending."""
        for number, (id_, shown) in enumerate(zip(self._ids, self._preferred, strict=True)):
            if shown == len(self._names):
                yield number, id_, number
        for place, (name, owner) in enumerate(zip(self._names, self._owners, strict=True), len(self._ids)):
            yield place, name, owner

    def label(self, place: int) -> str:
        """A label, given by its place among `labels`."""
        unnamed = len(self._ids)
        return self._ids[place] if place < unnamed else self._names[place - unnamed]

    def shown_label(self, number: int) -> int:
        """The place of the label that is shown for a node or relation."""
        name = self._preferred[number]
        return number if name == len(self._names) else len(self._ids) + name

    def ids(self) -> Iterator[str]:
        """The ids by number."""
        return iter(self._ids)


def _item(ids: StringTable, names: StringTable, preferred: memoryview, number: int) -> Item:
    id_, name = ids[number], preferred[number]
    return Item(id_, names[name] if name < len(names) else id_)


def _rank(size: int, item: Callable[[int], Item], label: str, id_: str) -> int:
    def order(number: int) -> tuple[str, str]:
        known = item(number)
        return known.label, known.id

    return bisect_left(range(size), (label, id_), key=order)


def _number(ids: StringTable, id_: str) -> int:
    found = ids.find(id_)
    if not found:
        # Raised, because lru_cache does not store exceptions: unknown ids are unbounded.
        raise KeyError(id_)
    return found[0]


class Times:
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

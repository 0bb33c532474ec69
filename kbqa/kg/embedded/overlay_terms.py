"""The ids and names of a graph that changed: those of its base, and what a change adds or names otherwise.

What a change adds has a number between two of the base, with a fraction (`overlay`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import overload

from kbqa.kg.actions import Item
from kbqa.kg.embedded.overlay_sides import Number
from kbqa.kg.embedded.terms import Terms


class ChangedTerms:
    """`Terms` over those of a base.

    Args:
        gone: numbers of the base that stand for nothing any more, or for a node that was moved.
        placed: number → id and label of what the base has not, or names otherwise.
        names: number of the base, or of `placed` → its names other than its id, where these changed.
    """

    def __init__(
        self,
        base: Terms,
        gone: set[int],
        placed: Mapping[Number, Item],
        names: Mapping[Number, list[str]],
    ) -> None:
        self._base, self._gone, self._placed, self._own_names = base, gone, placed, names
        self._numbers = {item.id: number for number, item in placed.items()}
        self._by_name: dict[str, list[Number]] = {}
        for number, own in names.items():
            for name in own:
                self._by_name.setdefault(name, []).append(number)

    @property
    def placed(self) -> Mapping[Number, Item]:
        """What the base has not, or names otherwise, by number."""
        return self._placed

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._placed)

    def number(self, id_: str) -> Number | None:
        own = self._numbers.get(id_)
        if own is not None:
            return own
        number = self._base.number(id_)
        return None if number in self._gone else number

    def item(self, number: Number) -> Item:
        own = self._placed.get(number)
        return self._base.item(int(number)) if own is None else own

    def id_of(self, number: Number) -> str:
        return self.item(number).id

    def names_of(self, number: Number) -> list[str]:
        own = self._own_names.get(number)
        if own is not None or number in self._placed:
            return own or []
        return self._base.names_of(int(number))

    def resolve(self, name: str) -> tuple[str, ...]:
        return (name,) if self.number(name) is not None else self.labelled_by(name)

    def labelled_by(self, label: str) -> tuple[str, ...]:
        kept = (n for n in self._base.owners_of(label) if n not in self._gone and n not in self._own_names)
        return tuple(sorted(self.id_of(number) for number in (*kept, *self._by_name.get(label, ()))))

    def labelled(self) -> Iterator[tuple[str, Item]]:
        for number, label, item in self._base.labelled_numbers():
            if number not in self._gone and number not in self._own_names:
                yield label, item
        for own in {*self._own_names, *self._placed}:
            item = self.item(own)
            if item.label == item.id:
                yield item.id, item
            yield from ((name, item) for name in self.names_of(own))


def placed_between(terms: Terms, items: list[Item]) -> dict[Number, Item]:
    """A number for each item, in the order of labels, then ids, between two of the base."""
    between: dict[int, list[Item]] = {}
    for item in sorted(items, key=_order):
        between.setdefault(terms.rank(item.label, item.id), []).append(item)
    return {
        place - 1 + rank / (len(some) + 1): item
        for place, some in between.items()
        for rank, item in enumerate(some, start=1)
    }


@overload
def number_in(terms: Terms, id_: str) -> int: ...
@overload
def number_in(terms: ChangedTerms, id_: str) -> Number: ...
def number_in(terms: Terms | ChangedTerms, id_: str) -> Number:
    """The number of an id that the terms have."""
    number = terms.number(id_)
    assert number is not None
    return number


def _order(item: Item) -> tuple[str, str]:
    return item.label, item.id

"""The entities that an episode has seen, against which its answers are resolved."""

from __future__ import annotations

from collections.abc import Iterable

from kbqa.answers import normalise
from kbqa.kg.actions import Item


class SeenEntities:
    """Labels and ids that observations showed.

    A label that several entities share stands for all of them.
    """

    def __init__(self) -> None:
        self._ids: dict[str, dict[str, None]] = {}
        self._labels: dict[str, str] = {}

    def add(self, items: Iterable[Item]) -> None:
        for item in items:
            name = normalise(item.label)
            self._labels.setdefault(name, item.label)
            self._ids.setdefault(name, {})[item.id] = None

    def __deepcopy__(self, memo: dict[int, object]) -> SeenEntities:
        # Forks of an episode copy thousands of names; the default deepcopy takes ten times as long.
        twin = SeenEntities()
        twin._ids = {name: ids.copy() for name, ids in self._ids.items()}
        twin._labels = self._labels.copy()
        return twin

    def __contains__(self, name: str) -> bool:
        return normalise(name) in self._labels

    def label(self, name: str) -> str:
        """A name as an observation wrote it; the name itself if none did."""
        return self._labels.get(normalise(name), name)

    def ids(self, name: str) -> tuple[str, ...]:
        """The entities with that label."""
        return tuple(self._ids.get(normalise(name), ()))

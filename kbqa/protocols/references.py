"""Entities by reference: `e1`, `e2` … stand for them, in the order in which an episode shows them.

A policy that writes references copies no names; a small policy would first have to learn copying
(docs/adr/0038-references-and-mined-paths.md). The topics of a question come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kbqa.kg.actions import Item
from kbqa.trajectory import Segment

REFERENCES = tuple(f"e{number}" for number in range(1, 25))
"""All references; they are tags of the dialect, so that a small policy has one token for each."""

_BLANK = re.compile(r"[\s_]+")


class References:
    """Which entity a reference stands for, in one episode.

    Args:
        topics: ids of the topic entities, in order.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self._entities: dict[str, Item] = {}
        self._references: dict[str, str] = {}  # by id
        self.add(Item(topic, topic) for topic in topics)

    def __deepcopy__(self, memo: dict[int, object]) -> References:
        # Episodes are forked at every turn of a tree; items never change.
        twin = References(())
        twin._entities, twin._references = self._entities.copy(), self._references.copy()
        return twin

    def add(self, items: Iterable[Item]) -> None:
        """Assign the next reference to each entity without one, as long as there are any left."""
        for item in items:
            if item.id not in self._references and len(self._references) < len(REFERENCES):
                self._references[item.id] = REFERENCES[len(self._references)]
            if item.id in self._references:  # for a topic, only the id was known before
                self._entities[self._references[item.id]] = item

    def of(self, id_: str) -> str | None:
        """The reference of an entity; None if it has none."""
        return self._references.get(id_)

    def entity(self, reference: str) -> Item | None:
        """The entity of a reference, which may be in quotes; None if there is none."""
        return self._entities.get(reference.strip(" \t\r\n\"'"))


def referring(text: str, topics: Sequence[str]) -> list[Segment]:
    """A question's text with references in place of its topics.

    References of topics that it does not name are put behind it. Case is ignored, blanks and underscores
    are equal, and the longest name is replaced first. References are trusted, the rest is not.
    """
    named = dict(zip(REFERENCES, topics, strict=False))
    missing = []
    pieces: list[Segment] = [Segment(text, trusted=False)]
    for reference, topic in sorted(named.items(), key=lambda pair: -len(pair[1])):
        parts = [part for piece in pieces for part in _replaced(piece, topic, reference)]
        if len(parts) == len(pieces):
            missing.append(reference)
        pieces = parts
    return pieces + [Segment(f" {reference}") for reference in sorted(missing, key=REFERENCES.index)]


def _replaced(piece: Segment, name: str, reference: str) -> list[Segment]:
    """A piece of text in which a reference replaces each occurrence of a name."""
    words = [re.escape(word) for word in _BLANK.split(name) if word]
    if piece.trusted or not words:
        return [piece]
    pattern = r"(?<!\w)" + r"[\s_]+".join(words) + r"(?!\w)"
    between = re.split(pattern, piece.text, flags=re.IGNORECASE)
    parts = [Segment(between[0], trusted=False)]
    for text in between[1:]:
        parts += [Segment(reference), Segment(text, trusted=False)]
    return [part for part in parts if part.text]

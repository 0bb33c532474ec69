"""Finds misspelt, partial and incomplete names by the words that a name and a text (nearly) share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA

from kbqa.kg.linking.names_by_word import MIN_CHARS, ChangedNames, ListedNames, NamesByWord, fold

# Question words used to search for names, and name words tried for each of them.
_MAX_ANCHORS = 12
_MAX_MEANT = 8
# A word in more names than this is not used for searching; other words of the names are.
_MAX_NAMES = 20_000
# Of partial names: the names that a part may stand for, and those among which they are searched.
MAX_MEANINGS = 4
_MAX_SEARCHED = 200


class Resemblance(NamedTuple):
    """Question words `first` to `last` (inclusive) that resemble `name`; `score` is below 1."""

    first: int
    last: int
    name: str
    score: float


class FuzzyNames:
    """Finds names by their words, also if these are misspelt or incomplete, or if only some are given."""

    def __init__(self, names: NamesByWord) -> None:
        self._names = names

    @classmethod
    def of(cls, names: Iterable[str]) -> FuzzyNames:
        """Those of some names: words separated by single spaces, all in the same case."""
        return cls(ListedNames(names))

    def changed(self, gone: Sequence[str], new: Sequence[str]) -> FuzzyNames:
        """The same with some names less and others more; shares everything else."""
        return FuzzyNames(ChangedNames(self._names, gone, new))

    def find(self, words: Sequence[str], anchors: Iterable[int]) -> list[Resemblance]:
        """Names that differ from a run of words by a few typing errors or by accents only.

        Args:
            anchors: indices of the words from which names are searched.
        """
        folded = [fold(word) for word in words]
        found: dict[tuple[int, int, str], float] = {}
        for anchor in list(anchors)[:_MAX_ANCHORS]:
            for word in self._meant(folded[anchor]):
                for count, names in self._names.names[word].items():
                    if len(names) <= _MAX_NAMES:
                        self._compare(folded, anchor, count, names, found)
        return [
            Resemblance(first, last, original, score)
            for (first, last, name), score in found.items()
            for original in self._names.originals[name]
            if original != " ".join(words[first : last + 1])
        ]

    def containing(self, words: Sequence[str]) -> list[str]:
        """The names that have some words, in that order, and further ones; accents do not matter.

        Those that end with the words are preferred, as surnames stand last. Words that are in more than
        `MAX_MEANINGS` names stand for none of them.
        """
        folded = [fold(word) for word in words]
        # The rarest word has the fewest names.
        fewest = min((self._names.names.get(word, {}) for word in folded), key=_count)
        if _count(fewest) > _MAX_SEARCHED:
            return []
        found = [
            name
            for count, names in fewest.items()
            if count > len(folded)
            for name in names
            if _has_in_order(name.split(" "), folded)
        ]
        if len(found) > MAX_MEANINGS:
            ending = " " + " ".join(folded)
            found = [name for name in found if name.endswith(ending)]
        originals = [original for name in found for original in self._names.originals[name]]
        return originals if len(found) <= MAX_MEANINGS else []

    def beginning(self, words: Sequence[str]) -> Iterator[str]:
        """Names that begin with some words, in alphabetical order, then other names that have these words.

        The last word may be incomplete; accents do not matter.
        """
        folded = [fold(word) for word in words]
        text = " ".join(folded)
        told: set[str] = set()
        for name in chain(self._names.names_beginning(text), self._further_on(folded)):
            if name not in told:
                told.add(name)
                yield from self._names.originals.get(name, ())

    def _further_on(self, words: Sequence[str]) -> Iterator[str]:
        *whole, last = words
        if not whole:
            for word in self._names.words_beginning(last):
                for names in self._names.names.get(word, {}).values():
                    yield from names
            return
        # The rarest word has the fewest names.
        fewest = min((self._names.names.get(word, {}) for word in whole), key=_count)
        if _count(fewest) > _MAX_NAMES:
            return
        for names in fewest.values():
            for name in names:
                following = iter(name.split(" "))
                if all(word in following for word in whole) and any(w.startswith(last) for w in following):
                    yield name

    def _meant(self, word: str) -> list[str]:
        """The name words that a question word may stand for: itself, and words a few errors away."""
        # More errors than in a whole name of that length, since the rest of the name may have none.
        most = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
        choices = self._names.words_like(word, most)
        matches = process.extract(word, choices, scorer=OSA.distance, score_cutoff=most, limit=_MAX_MEANT)
        return [match for match, _, _ in matches]

    def _compare(
        self,
        words: Sequence[str],
        anchor: int,
        count: int,
        names: Sequence[str],
        found: dict[tuple[int, int, str], float],
    ) -> None:
        """Compare names of `count` words with every run of `count` words that contains the anchor."""
        for first in range(max(0, anchor - count + 1), min(anchor, len(words) - count) + 1):
            span = " ".join(words[first : first + count])
            most = _errors_in(span)
            matches = process.extract(span, names, scorer=OSA.distance, score_cutoff=most, limit=_MAX_MEANT)
            for name, errors, _ in matches:
                # With no errors, only accents differ.
                score = 1 - max(errors, 0.1) / max(len(span), len(name))
                found[first, first + count - 1, name] = round(score, 4)


def _errors_in(text: str) -> int:
    """The number of typing errors (extra, missing, wrong or swapped letters) allowed in a text."""
    return 0 if len(text) < MIN_CHARS else 1 if len(text) < 10 else 2 if len(text) < 18 else 3


def _count(names: Mapping[int, Sequence[str]]) -> int:
    return sum(map(len, names.values()))


def _has_in_order(words: Sequence[str], wanted: Sequence[str]) -> bool:
    remaining = iter(words)
    return all(word in remaining for word in wanted)

"""Finds misspelt, partial and incomplete names by the words that a name and a text (nearly) share."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA

# Shorter texts are more often ordinary words or numbers than misspelt names.
_MIN_CHARS = 5
_MAX_WORDS = 8
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
    """Finds names by their words, also if these are misspelt or incomplete, or only some of them are given.

    Args:
        names: words separated by single spaces, all in the same case.
    """

    def __init__(self, names: Iterable[str]) -> None:
        # Word → number of words in a name → folded names with the word; folded name → original names.
        self._names: MutableMapping[str, dict[int, list[str]]] = {}
        self._originals: MutableMapping[str, list[str]] = {}
        for name in names:
            folded = _fold(name)
            originals = self._originals.setdefault(folded, [])
            originals.append(name)
            words = _searched(folded)
            if len(originals) == 1:
                for word in dict.fromkeys(words):
                    self._names.setdefault(word, {}).setdefault(len(words), []).append(folded)
        self._words_of_length: MutableMapping[int, list[str]] = {}
        for word in self._names:
            self._words_of_length.setdefault(len(word), []).append(word)
        # The instance that this one was changed from, and the folded names that are new since.
        self._unchanged: FuzzyNames = self
        self._new: tuple[str, ...] = ()

    def changed(self, gone: Iterable[str], new: Iterable[str]) -> FuzzyNames:
        """The same with some names less and others more; shares everything else."""
        changed = FuzzyNames(())
        changed._names, changed._originals = ChainMap({}, self._names), ChainMap({}, self._originals)
        changed._words_of_length = ChainMap({}, self._words_of_length)
        changed._unchanged = self._unchanged
        for name in gone:
            changed._remove(name)
        added = list(new)
        for name in added:
            changed._add(name)
        changed._new = tuple(sorted({*self._new, *map(_fold, added)}))
        return changed

    def _add(self, name: str) -> None:
        folded = _fold(name)
        before = self._originals.get(folded, [])
        self._originals[folded] = [*before, name]
        words = _searched(folded)
        for word in dict.fromkeys(words if not before else ()):
            counts = self._names.get(word, {})
            self._names[word] = {**counts, len(words): [*counts.get(len(words), ()), folded]}
            if not counts:
                self._words_of_length[len(word)] = [*self._words_of_length.get(len(word), ()), word]

    def _remove(self, name: str) -> None:
        folded = _fold(name)
        left = self._originals[folded] = [one for one in self._originals.get(folded, ()) if one != name]
        words = _searched(folded)
        for word in dict.fromkeys(words if not left else ()):
            names = [one for one in self._names[word][len(words)] if one != folded]
            counts = {**self._names[word], len(words): names}
            self._names[word] = {count: some for count, some in counts.items() if some}
            if not self._names[word]:
                others = (other for other in self._words_of_length[len(word)] if other != word)
                self._words_of_length[len(word)] = list(others)

    def find(self, words: Sequence[str], anchors: Iterable[int]) -> list[Resemblance]:
        """Names that differ from a run of words by a few typing errors or by accents only.

        Args:
            anchors: indices of the words from which names are searched.
        """
        folded = [_fold(word) for word in words]
        found: dict[tuple[int, int, str], float] = {}
        for anchor in list(anchors)[:_MAX_ANCHORS]:
            for word in self._meant(folded[anchor]):
                for count, names in self._names[word].items():
                    if len(names) <= _MAX_NAMES:
                        self._compare(folded, anchor, count, names, found)
        return [
            Resemblance(first, last, original, score)
            for (first, last, name), score in found.items()
            for original in self._originals[name]
            if original != " ".join(words[first : last + 1])
        ]

    def containing(self, words: Sequence[str]) -> list[str]:
        """The names that have some words, in that order, and further ones; accents do not matter.

        Those that end with the words are preferred, as surnames stand last. Words that are in more than
        `MAX_MEANINGS` names stand for none of them.
        """
        folded = [_fold(word) for word in words]
        # The rarest word has the fewest names.
        fewest = min((self._names.get(word, {}) for word in folded), key=_count)
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
        originals = [original for name in found for original in self._originals[name]]
        return originals if len(found) <= MAX_MEANINGS else []

    def beginning(self, words: Sequence[str]) -> Iterator[str]:
        """Names that begin with some words, in alphabetical order, then other names that have these words.

        The last word may be incomplete; accents do not matter.
        """
        folded = [_fold(word) for word in words]
        text = " ".join(folded)
        at_first = merge(_beginning(self._unchanged._in_order, text), _beginning(self._new, text))
        told: set[str] = set()
        for name in chain(at_first, self._further_on(folded)):
            if name not in told:
                told.add(name)
                yield from self._originals.get(name, ())

    def _further_on(self, words: Sequence[str]) -> Iterator[str]:
        *whole, last = words
        if not whole:
            new = sorted({word for name in self._new for word in _searched(name)})
            known = _beginning(self._unchanged._words_in_order, last)
            for word in merge(known, _beginning(new, last)):
                for names in self._names.get(word, {}).values():
                    yield from names
            return
        # The rarest word has the fewest names.
        fewest = min((self._names.get(word, {}) for word in whole), key=_count)
        if _count(fewest) > _MAX_NAMES:
            return
        for names in fewest.values():
            for name in names:
                following = iter(name.split(" "))
                if all(word in following for word in whole) and any(w.startswith(last) for w in following):
                    yield name

    @cached_property
    def _in_order(self) -> Sequence[str]:
        return sorted(self._originals)

    @cached_property
    def _words_in_order(self) -> Sequence[str]:
        return sorted(self._names)

    def _meant(self, word: str) -> list[str]:
        """The name words that a question word may stand for: itself, and words a few errors away."""
        # More errors than in a whole name of that length, since the rest of the name may have none.
        most = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
        choices = [
            choice
            for length in range(len(word) - most, len(word) + most + 1)
            for choice in self._words_of_length.get(length, ())
        ]
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


def _searched(folded: str) -> list[str]:
    """The words by which a name is found; none if it is too short or too long."""
    words = folded.split(" ")
    return words if len(folded) >= _MIN_CHARS and len(words) <= _MAX_WORDS else []


def _errors_in(text: str) -> int:
    """The number of typing errors (extra, missing, wrong or swapped letters) allowed in a text."""
    return 0 if len(text) < _MIN_CHARS else 1 if len(text) < 10 else 2 if len(text) < 18 else 3


def _beginning(texts: Sequence[str], text: str) -> Iterator[str]:
    """Those of some sorted texts that begin with a text."""
    for place in range(bisect_left(texts, text), len(texts)):
        if not texts[place].startswith(text):
            return
        yield texts[place]


def _count(names: Mapping[int, Sequence[str]]) -> int:
    return sum(map(len, names.values()))


def _has_in_order(words: Sequence[str], wanted: Sequence[str]) -> bool:
    remaining = iter(words)
    return all(word in remaining for word in wanted)


def _fold(text: str) -> str:
    """Remove accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character))

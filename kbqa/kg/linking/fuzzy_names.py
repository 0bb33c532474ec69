"""Names that a question misspells: found by the words that they share or nearly share with it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import OSA

# Less than this is an ordinary word or a number more often than a misspelt name.
_MIN_CHARS = 5
_MAX_WORDS = 8
# Words of a question that names are looked for by, and words that each of them may have meant.
_MAX_ANCHORS = 12
_MAX_MEANT = 8
# A word of more names than this finds none of them: another word of the name does.
_MAX_NAMES = 20_000


class Resemblance(NamedTuple):
    """The words `first` to `last` of a question, the last included, resemble `name`, by less than 1."""

    first: int
    last: int
    name: str
    score: float


class FuzzyNames:
    """Names by their words, and by words that are some typing errors away from those.

    Args:
        names: as words with single spaces between, in one case.
    """

    def __init__(self, names: Iterable[str]) -> None:
        # Word → number of words → folded names with it that have as many; and whose folded form each is.
        self._names: dict[str, dict[int, list[str]]] = {}
        self._originals: dict[str, list[str]] = {}
        for name in names:
            folded = _fold(name)
            originals = self._originals.setdefault(folded, [])
            originals.append(name)
            words = folded.split(" ")
            if len(originals) == 1 and len(folded) >= _MIN_CHARS and len(words) <= _MAX_WORDS:
                for word in dict.fromkeys(words):
                    self._names.setdefault(word, {}).setdefault(len(words), []).append(folded)
        self._words_of_length: dict[int, list[str]] = {}
        for word in self._names:
            self._words_of_length.setdefault(len(word), []).append(word)

    def find(self, words: Sequence[str], anchors: Iterable[int]) -> list[Resemblance]:
        """Names that resemble words in a row without being them, by the typing errors between them.

        Args:
            anchors: places of the words that a name may be found by.
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

    def _meant(self, word: str) -> list[str]:
        """Words of names that a word of a question may be: itself, and those few errors away."""
        # More than in a name of that length: the rest of the name may make up for it.
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
        """Compare names of `count` words with every as many words around the anchor."""
        for first in range(max(0, anchor - count + 1), min(anchor, len(words) - count) + 1):
            span = " ".join(words[first : first + count])
            most = _errors_in(span)
            matches = process.extract(span, names, scorer=OSA.distance, score_cutoff=most, limit=_MAX_MEANT)
            for name, errors, _ in matches:
                # Without an error it is the accents that differ.
                score = 1 - max(errors, 0.1) / max(len(span), len(name))
                found[first, first + count - 1, name] = round(score, 4)


def _errors_in(text: str) -> int:
    """Typing errors (a letter too much, missing, wrong, or two exchanged) that a text may hold."""
    return 0 if len(text) < _MIN_CHARS else 1 if len(text) < 10 else 2 if len(text) < 18 else 3


def _fold(text: str) -> str:
    """Without accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character))

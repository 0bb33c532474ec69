"""The names of a graph, folded (without accents), by the words that they have.

`NamesByWord` is what `FuzzyNames` searches. `ListedNames` are in memory; those of a loaded graph are on disk
(`kbqa.kg.embedded.name_index`); `ChangedNames` are other ones after a change.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Protocol, TypeVar, overload

# A name is searched by its words if it has this many characters at least, and this many words at most.
# Shorter texts are more often ordinary words or numbers than misspelt names.
MIN_CHARS = 5
MAX_WORDS = 8

K = TypeVar("K")
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
_Counted = Mapping[int, Sequence[str]]  # number of words in a name → names


class LookUp(Protocol[K_contra, V]):
    """A mapping of which single keys are looked up, but not all listed."""

    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: K_contra, /) -> V: ...
    def get(self, key: K_contra, default: V, /) -> V: ...


class NamesByWord(Protocol):
    """Names, which are words separated by single spaces, all in the same case."""

    @property
    def names(self) -> LookUp[str, _Counted]:
        """Word → number of words in a name → folded names with the word."""

    @property
    def originals(self) -> LookUp[str, Sequence[str]]:
        """Folded name → the names that are folded to it."""

    def words_like(self, word: str, most: int) -> Sequence[str]:
        """All words that differ from a word by at most so many typing errors, and some others."""

    def names_beginning(self, text: str) -> Iterator[str]:
        """Folded names that begin with a text, in order."""

    def words_beginning(self, text: str) -> Iterator[str]:
        """Words that begin with a text, in order."""


class ListedNames:
    """Names in memory, as `NamesByWord`."""

    def __init__(self, names: Iterable[str]) -> None:
        originals: dict[str, list[str]] = {}
        for name in names:
            originals.setdefault(fold(name), []).append(name)
        self._in_order = sorted(originals)
        by_word: dict[str, dict[int, list[str]]] = {}
        for folded in self._in_order:
            words = searched_words(folded)
            for word in dict.fromkeys(words):
                by_word.setdefault(word, {}).setdefault(len(words), []).append(folded)
        self._words_in_order = sorted(by_word)
        self._words_of_length: dict[int, list[str]] = {}
        for word in self._words_in_order:
            self._words_of_length.setdefault(len(word), []).append(word)
        self.names: Mapping[str, _Counted] = {word: dict(sorted(by_word[word].items())) for word in by_word}
        self.originals: Mapping[str, Sequence[str]] = originals

    def words_like(self, word: str, most: int) -> Sequence[str]:
        lengths = range(len(word) - most, len(word) + most + 1)
        return [like for length in lengths for like in self._words_of_length.get(length, ())]

    def names_beginning(self, text: str) -> Iterator[str]:
        return beginning(self._in_order, text)

    def words_beginning(self, text: str) -> Iterator[str]:
        return beginning(self._words_in_order, text)


class ChangedNames:
    """Names with some less and others more, as `NamesByWord`; shares everything else with those before."""

    def __init__(self, before: NamesByWord, gone: Sequence[str], new: Sequence[str]) -> None:
        self._before = before
        self.originals = overlaid(before.originals)
        for name in gone:
            self.originals[fold(name)] = [one for one in self.originals.get(fold(name), ()) if one != name]
        for name in new:
            self.originals[fold(name)] = [*self.originals.get(fold(name), ()), name]
        changed = sorted({fold(name) for name in (*gone, *new)})
        lost = [name for name in changed if before.originals.get(name, ()) and not self.originals[name]]
        self._new = [name for name in changed if self.originals[name] and not before.originals.get(name, ())]
        self.names = overlaid(before.names)
        less, more = ListedNames(lost).names, ListedNames(self._new).names
        words = sorted({*less, *more})
        for word in words:
            old, out, into = before.names.get(word, {}), less.get(word, {}), more.get(word, {})
            counts = {
                count: _Exchanged(old.get(count, ()), out.get(count, ()), into.get(count, ()))
                for count in sorted({*old, *out, *into})
            }
            self.names[word] = {count: names for count, names in counts.items() if names}
        self._lost_words = {word for word in words if not self.names[word]}
        self._new_words = [word for word in words if self.names[word] and word not in before.names]

    def words_like(self, word: str, most: int) -> Sequence[str]:
        known = [like for like in self._before.words_like(word, most) if like not in self._lost_words]
        return known + [like for like in self._new_words if abs(len(like) - len(word)) <= most]

    def names_beginning(self, text: str) -> Iterator[str]:
        return merge(self._before.names_beginning(text), beginning(self._new, text))

    def words_beginning(self, text: str) -> Iterator[str]:
        return merge(self._before.words_beginning(text), beginning(self._new_words, text))


class _Exchanged(Sequence[str]):
    """Distinct strings with some less and others more; takes no time or memory for those that stay."""

    def __init__(self, before: Sequence[str], gone: Sequence[str], new: Sequence[str]) -> None:
        self._before, self._gone, self._new = before, frozenset(gone), new

    def __len__(self) -> int:
        return len(self._before) - len(self._gone) + len(self._new)

    def __iter__(self) -> Iterator[str]:
        yield from (one for one in self._before if one not in self._gone)
        yield from self._new

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return list(self)[place]


def overlaid(before: LookUp[K, V]) -> ChainMap[K, V]:
    """A mapping that shows another one until a key is written; the other one is left as it is."""
    # A ChainMap writes to its first mapping only.
    return ChainMap({}, before)  # type: ignore[arg-type]


def fold(text: str) -> str:
    """Remove accents."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def is_searched(folded: str) -> bool:
    """Whether a name is searched by its words; not if it is too short or too long."""
    return len(folded) >= MIN_CHARS and folded.count(" ") < MAX_WORDS


def searched_words(folded: str) -> list[str]:
    """The words by which a name is found."""
    return folded.split(" ") if is_searched(folded) else []


def beginning(texts: Sequence[str], text: str) -> Iterator[str]:
    """Those of some sorted texts that begin with a text."""
    for place in range(bisect_left(texts, text), len(texts)):
        if not texts[place].startswith(text):
            return
        yield texts[place]

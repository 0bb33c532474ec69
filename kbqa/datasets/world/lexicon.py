"""Words and their relatives from WordNet (Fellbaum 1998), and their inflections.

    lexicon = Lexicon.load()
    lexicon.related("parent", NOUN)       same: (), wider: (ancestor …), narrower: (father, mother …)
    lexicon.agent("direct")               director

WordNet's files are read where Debian's package `wordnet-base` puts them, or in the directory that
KBQA_WORDNET names. A word is read in its first sense, which is its most frequent one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple, cast

from kbqa.errors import DatasetError

PartOfSpeech = Literal["noun", "verb"]
NOUN: PartOfSpeech = "noun"
VERB: PartOfSpeech = "verb"

_DEBIAN = Path("/usr/share/wordnet")
_NUMBER = {"noun": "1", "verb": "2"}
# Lexicographer files, as WordNet numbers them; only those of nouns that are used here.
_FIELDS = {
    4: "act",
    6: "artifact",
    7: "attribute",
    9: "cognition",
    10: "communication",
    11: "event",
    12: "feeling",
    13: "food",
    14: "group",
    15: "location",
    17: "object",
    18: "person",
    20: "plant",
    21: "possession",
    23: "quantity",
    24: "relation",
    26: "state",
    27: "substance",
    28: "time",
}
# "Somebody ----s something", "Somebody ----s somebody", "Something ----s something".
_TRANSITIVE = frozenset({8, 9, 11})
_WIDER, _NARROWER, _DERIVED = "@", "~", "+"
_USAGE = ";u"  # marks slurs, vulgar and archaic words
_STEM = 3  # letters that a derived word shares with its verb


class Related(NamedTuple):
    """Words of the same, of wider and of narrower meaning."""

    same: tuple[str, ...]
    wider: tuple[str, ...]
    narrower: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Synset:
    field: int
    words: tuple[str, ...]
    pointers: tuple[tuple[str, str, str], ...]  # symbol, offset, part of speech
    frames: frozenset[int]


class Lexicon:
    """The nouns and verbs of WordNet."""

    def __init__(self, directory: Path) -> None:
        self._counts = _counts(directory)
        self._synsets: Mapping[str, Mapping[str, _Synset]] = {
            part: _synsets(directory, part) for part in _NUMBER
        }
        self._first = {part: _first_senses(directory, part) for part in _NUMBER}

    @classmethod
    def load(cls, directory: Path | None = None) -> Lexicon:
        """Read WordNet's files.

        Args:
            directory: which holds `data.noun` and the other files; by default KBQA_WORDNET, or Debian's.

        Raises:
            DatasetError: the files are not there, or cannot be read.
        """
        named = os.environ.get("KBQA_WORDNET")
        where = directory or (Path(named) if named else _DEBIAN)
        try:
            return cls(where)
        except (OSError, ValueError, IndexError) as error:
            raise DatasetError(
                f"{where}: WordNet cannot be read ({error}): run apt-get install wordnet-base, or set "
                "KBQA_WORDNET to the directory that holds data.noun"
            ) from error

    def nouns(self, *fields: str, frequency: int = 3) -> list[str]:
        """Nouns of semantic fields (such as `person`), counted at least so often in WordNet's texts."""
        wanted = {number for number, name in _FIELDS.items() if name in fields}
        return [word for word in self._common(NOUN, frequency) if self._sense(word, NOUN).field in wanted]

    def transitive_verbs(self, frequency: int = 3) -> list[str]:
        common = self._common(VERB, frequency)
        return [word for word in common if not _TRANSITIVE.isdisjoint(self._sense(word, VERB).frames)]

    @lru_cache(maxsize=1 << 14)  # noqa: B019 - a process has one lexicon
    def related(self, word: str, part: PartOfSpeech) -> Related:
        """Words that may stand in for a word; none for one that is unknown."""
        if word not in self._first[part]:
            return Related((), (), ())
        sense = self._sense(word, part)
        near = (other.lower().replace("_", " ") for other in sense.words)
        same = (other for other in near if other != word and other.replace(" ", "").isalpha())
        return Related(
            tuple(other for other in same if self._counts[part, other.replace(" ", "_")]),
            tuple(self._pointed(sense, _WIDER, part)),
            tuple(self._pointed(sense, _NARROWER, part)),
        )

    def below(self, noun: str, frequency: int = 3) -> list[str]:
        """Nouns that have, in any of their senses, a narrower meaning than a noun's; at any distance."""
        found: dict[str, None] = {}
        waiting, seen = [self._sense(noun, NOUN)], set[str]()
        while waiting:
            for symbol, offset, part in waiting.pop().pointers:
                if symbol == _NARROWER and part == "n" and offset not in seen:
                    seen.add(offset)
                    sense = self._synsets[NOUN][offset]
                    waiting.append(sense)
                    found |= dict.fromkeys(map(str.lower, sense.words))
        common = set(self._common(NOUN, frequency))
        return [word for word in found if word in common]

    def knows(self, word: str, part: PartOfSpeech) -> bool:
        return word in self._first[part]

    def count(self, word: str, part: PartOfSpeech) -> int:
        """Occurrences in WordNet's tagged texts."""
        return self._counts[part, word]

    def is_person(self, noun: str) -> bool:
        """Whether a noun, by its last word, means people."""
        head = noun.split()[-1]
        return self.knows(head, NOUN) and _FIELDS.get(self._sense(head, NOUN).field) == "person"

    def is_transitive(self, verb: str) -> bool:
        return self.knows(verb, VERB) and not _TRANSITIVE.isdisjoint(self._sense(verb, VERB).frames)

    def verb_of(self, act: str) -> str | None:
        """What an act does, as a transitive verb: publication, publish; release, release."""
        if self.is_transitive(act):
            return act
        if not self.knows(act, NOUN):
            return None
        for symbol, offset, part in self._sense(act, NOUN).pointers:
            if symbol == _DERIVED and part == "v":
                for word in map(str.lower, self._synsets[VERB][offset].words):
                    if word[:_STEM] == act[:_STEM] and self.is_transitive(word):
                        return word
        return None

    def agent(self, verb: str) -> str | None:
        """Who does what a verb says: write, writer; None for a verb that is unknown or has no such noun."""
        return self._derived(verb, ("person",))

    def act(self, verb: str) -> str | None:
        """What a verb says, as a noun: publish, publication."""
        return self._derived(verb, ("act", "event"))

    def _sense(self, word: str, part: PartOfSpeech) -> _Synset:
        return self._synsets[part][self._first[part][word]]

    def _common(self, part: PartOfSpeech, frequency: int) -> Iterator[str]:
        for word in self._first[part]:
            is_common = word.isalpha() and 3 <= len(word) <= 14 and self._counts[part, word] >= frequency
            if is_common and not _is_marked(self._sense(word, part)):
                yield word

    def _pointed(self, sense: _Synset, symbol: str, part: PartOfSpeech) -> Iterator[str]:
        """Words whose first sense a pointer leads to."""
        for kind, offset, _ in sense.pointers:
            if kind != symbol:
                continue
            for word in map(str.lower, self._synsets[part][offset].words):
                is_first = self._first[part].get(word) == offset
                if word.isalpha() and is_first and self._counts[part, word] >= 2:
                    yield word

    def _derived(self, verb: str, fields: tuple[str, ...]) -> str | None:
        if not self.knows(verb, VERB):
            return None
        for symbol, offset, part in self._sense(verb, VERB).pointers:
            if symbol != _DERIVED or part != "n":
                continue
            target = self._synsets[NOUN][offset]
            if _FIELDS.get(target.field) in fields:
                for word in map(str.lower, target.words):
                    if word.isalpha() and word[:_STEM] == verb[:_STEM]:
                        return word
        return None


def _is_marked(sense: _Synset) -> bool:
    """Whether WordNet marks the usage of a sense, for instance as a slur."""
    return any(symbol == _USAGE for symbol, _, _ in sense.pointers)


class Inflections:
    """Forms of English words, by lemminflect.

    Raises:
        DatasetError: by any method, if lemminflect is not installed.
    """

    @cached_property
    def _inflect(self) -> object:
        return _lemminflect().getInflection

    def of(self, word: str, tag: str) -> str:
        """A word inflected: VBD (wrote), VBN (written), VBG (writing), VBZ (writes), NNS (writers)."""
        inflected: tuple[str, ...] = self._inflect(word, tag=tag)  # type: ignore[operator]
        return inflected[0] if inflected else word

    def lemmas(self, word: str, part: PartOfSpeech) -> tuple[str, ...]:
        """What a word may be a form of: directed, direct; actors, actor."""
        found: dict[str, tuple[str, ...]] = _lemminflect().getAllLemmas(word)
        return found.get(part.upper(), ())


def _lemminflect() -> ModuleType:
    try:
        import lemminflect
    except ImportError as error:
        raise DatasetError('the package lemminflect is missing: pip install "kbqa[worlds]"') from error
    return cast(ModuleType, lemminflect)


def _lines(file: Path) -> Iterator[str]:
    with file.open(encoding="utf-8") as lines:
        # The licence, at the beginning, is indented.
        yield from (line for line in lines if not line.startswith("  "))


def _counts(directory: Path) -> Counter[tuple[str, str]]:
    """(part of speech, word) → occurrences in WordNet's tagged texts."""
    parts = {number: part for part, number in _NUMBER.items()}
    counts: Counter[tuple[str, str]] = Counter()
    for line in _lines(directory / "cntlist.rev"):
        key, _, count = line.split()
        word, _, rest = key.partition("%")
        if rest[0] in parts:
            counts[parts[rest[0]], word] += int(count)
    return counts


def _synsets(directory: Path, part: str) -> dict[str, _Synset]:
    """Offset → set of synonyms (wndb(5WN))."""
    found = {}
    for line in _lines(directory / f"data.{part}"):
        fields = line.partition("|")[0].split()
        words_end = 4 + 2 * int(fields[3], 16)
        pointers_end = words_end + 1 + 4 * int(fields[words_end])
        pointers = fields[words_end + 1 : pointers_end]
        frames = fields[pointers_end + 1 :]  # + number word, for each
        found[fields[0]] = _Synset(
            int(fields[1]),
            tuple(fields[4:words_end:2]),
            tuple(zip(pointers[::4], pointers[1::4], pointers[2::4], strict=True)),
            frozenset(map(int, frames[1::3])),
        )
    return found


def _first_senses(directory: Path, part: str) -> dict[str, str]:
    """Word → offset of its first sense."""
    found = {}
    for line in _lines(directory / f"index.{part}"):
        fields = line.split()
        found[fields[0]] = fields[6 + int(fields[3])]
    return found

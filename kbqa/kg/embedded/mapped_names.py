"""The names of a graph on disk, as its linker looks them up.

Opening them takes constant time and hardly any memory; `write_names` makes them when a graph is loaded.
Names are kept by folded key: tokens in lower case, without accents, with single spaces. Each stands for
labels of nodes, which are not stored again but given by their place (`Terms.labels`).

    entities.keys.*    folded keys of the names of entities, in order: a string table
    entities.starts    key → its first label
    entities.labels    place of each label
    entities.nodes     what each label stands for
    values.*           likewise for texts that are no names of entities
    first_tokens       hash of a first token → bits: the token counts of the names that begin with it
    words.*            words of the names of entities, by length, then alphabet: a string table
    word_lengths       number of characters → its first word
    word_letters       word → bits: the characters that it has
    named.*            word → number of words in a name → keys (a `MappedSide`)
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import compress, islice
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from kbqa.kg.actions import Item
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.indexing import Numbering, distinct_rows, write_side
from kbqa.kg.embedded.sides import MappedSide
from kbqa.kg.embedded.tables import StringTable, map_numbers, starts_of, write_numbers
from kbqa.kg.embedded.terms import Terms
from kbqa.kg.embedded.vocabulary import Vocabulary, literals
from kbqa.kg.linking.linker import may_be_topic
from kbqa.kg.linking.names_by_word import K, V, beginning, fold, is_searched
from kbqa.kg.linking.tokens import key_of

# First tokens share this many entries at most. Where two share one, a linker looks up some names in vain.
_MAX_ENTRIES = 1 << 20
# The last bit stands for all token counts from this one on.
_MOST_TOKENS = 64
_LETTERS = {character: bit for bit, character in enumerate(ascii_lowercase + digits)}
_CHUNK = 1 << 16  # labels at a time

T = TypeVar("T")
Numbers = npt.NDArray[np.integer]
# Hashes of first tokens, and the token counts of the names that begin with them.
_Lengths = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]


class MappedNames:
    """A `NameIndex` on disk.

    Args:
        directory: written by `write_names`.
        nodes: of the graph.
        schema: ids of the parts of the schema.
    """

    def __init__(self, directory: Path, nodes: Terms, schema: Collection[str]) -> None:
        self.entities = _Labelled(directory, "entities", nodes)
        self.values = _Labelled(directory, "values", nodes)
        self.lengths = _MappedLengths(directory)
        self.words = _MappedWords(directory, self.entities, schema)

    @staticmethod
    def exist(directory: Path) -> bool:
        return (directory / "first_tokens.npy").exists()


class _LookUp(ABC, Generic[K, V]):
    """Turns `__getitem__`, which raises KeyError, into a `LookUp`."""

    @abstractmethod
    def __getitem__(self, key: K) -> V: ...

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[index]
        except KeyError:
            return False
        return True

    def get(self, key: K, default: V) -> V:
        try:
            return self[key]
        except KeyError:
            return default


class _Labelled(_LookUp[str, Sequence[tuple[str, Item]]]):
    """Key → labels with that key, and what they stand for."""

    def __init__(self, directory: Path, name: str, nodes: Terms) -> None:
        self.keys = StringTable(directory, f"{name}.keys")
        self._starts = map_numbers(directory / f"{name}.starts.npy")
        self._labels = map_numbers(directory / f"{name}.labels.npy")
        self._nodes = map_numbers(directory / f"{name}.nodes.npy")
        self._terms = nodes

    def __getitem__(self, key: str) -> Sequence[tuple[str, Item]]:
        found = [(label, item) for label, item in self.of_folded(fold(key)) if key_of(label) == key]
        if not found:
            raise KeyError(key)
        return found

    def of_folded(self, folded: str) -> Iterator[tuple[str, Item]]:
        for number in self.keys.find(folded):
            for entry in range(self._starts[number], self._starts[number + 1]):
                yield self._terms.label(self._labels[entry]), self._terms.item(self._nodes[entry])


class _MappedLengths(_LookUp[str, tuple[int, ...]]):
    """First token → token counts of names, longest first."""

    def __init__(self, directory: Path) -> None:
        self._entries = map_numbers(directory / "first_tokens.npy")

    def __getitem__(self, token: str) -> tuple[int, ...]:
        # The last entry is the highest token count of all names.
        *_, longest = self._entries[-1:]
        bits = self._entries[_hash(token) & (len(self._entries) - 2)]
        most = range(longest, _MOST_TOKENS - 1, -1) if bits >> (_MOST_TOKENS - 1) else ()
        return *most, *(count for count in range(_MOST_TOKENS - 1, 0, -1) if bits >> (count - 1) & 1)


class _Strings(Sequence[str]):
    """Some strings of a table, given by number."""

    def __init__(self, table: StringTable, numbers: Sequence[int] | memoryview) -> None:
        self._table, self._numbers = table, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return _Strings(self._table, self._numbers[place])
        return self._table[self._numbers[place]]


class _MappedWords:
    """`NamesByWord` on disk."""

    def __init__(self, directory: Path, entities: _Labelled, schema: Collection[str]) -> None:
        self._words = StringTable(directory, "words")
        self._by_length = map_numbers(directory / "word_lengths.npy")
        self._keys = entities.keys
        self.names = _ByWord(self._words, MappedSide(directory, "named"), self._keys)
        self.originals = _Originals(entities, schema)
        self._letters = map_numbers(directory / "word_letters.npy")

    def words_like(self, word: str, most: int) -> Sequence[str]:
        longest = len(self._by_length) - 2
        first = self._by_length[min(max(len(word) - most, 0), longest)]
        end = self._by_length[min(len(word) + most, longest) + 1]
        # An error exchanges one letter for another at most.
        others = np.bitwise_count(np.asarray(self._letters[first:end]) ^ _letters_of(word))
        return [self._words[number] for number in (np.flatnonzero(others <= 2 * most) + first).tolist()]

    def names_beginning(self, text: str) -> Iterator[str]:
        return beginning(_Strings(self._keys, range(len(self._keys))), text)

    def words_beginning(self, text: str) -> Iterator[str]:
        ranges = map(range, self._by_length, self._by_length[1:])
        return merge(*(beginning(_Strings(self._words, numbers), text) for numbers in ranges))


class _ByWord(_LookUp[str, Mapping[int, Sequence[str]]]):
    """Word → number of words in a name → folded names."""

    def __init__(self, words: StringTable, named: MappedSide, keys: StringTable) -> None:
        self._words, self._named, self._keys = words, named, keys

    def __getitem__(self, word: str) -> Mapping[int, Sequence[str]]:
        found = self._words.find(word)
        if not found:
            raise KeyError(word)
        [number] = found
        counts = self._named.relations_of(number)
        return {count: _Strings(self._keys, self._named.neighbours(number, count)) for count in counts}


class _Originals(_LookUp[str, Sequence[str]]):
    """Folded name → keys of entities."""

    def __init__(self, entities: _Labelled, schema: Collection[str]) -> None:
        self._entities, self._schema = entities, schema

    def __getitem__(self, folded: str) -> Sequence[str]:
        labelled = self._entities.of_folded(folded)
        found = list(dict.fromkeys(key_of(label) for label, item in labelled if item.id not in self._schema))
        if not found:
            raise KeyError(folded)
        return found


def write_names(
    directory: Path, index: Adjacency, vocabulary: Vocabulary, naming: Iterable[int], *, named: bool
) -> None:
    """Write the names of a graph.

    Args:
        index: of the graph.
        naming: `naming_relations` of the graph.
        named: whether ids are names from a delimited file.
    """
    terms, _ = index.terms
    is_literal = bytearray(not named and id_.startswith('"') for id_ in terms.ids())
    names = _Collected(label for label in terms.labels() if not is_literal[label[2]])
    lengths = [names.lengths()]
    key_of_label, nodes = names.write(directory, "entities")
    del names
    entities = _Labelled(directory, "entities", terms)
    schema = np.isin(nodes, index.numbers(vocabulary.schema))
    _write_words(directory, entities.keys, np.unique(key_of_label[~schema]))
    texts = (
        (terms.shown_label(node), text, bearer)
        for node, bearer in (() if named else literals(index, naming))
        if may_be_topic(text := index.label_at(node)) and key_of(text) not in entities
    )
    values = _Collected(texts)
    lengths.append(values.lengths())
    values.write(directory, "values")
    _write_lengths(directory, lengths)


class _Collected:
    """Labels and what they stand for, in columns because there may be millions.

    Args:
        labels: (place, label, node that it stands for).
    """

    def __init__(self, labels: Iterable[tuple[int, str, int]]) -> None:
        self._folded: list[str] = []
        self._labels, self._nodes = array("Q"), array("Q")
        self._firsts, self._counts = array("I"), array("I")
        for chunk in _chunks(labels):
            places, texts, nodes = zip(*chunk, strict=True)
            keys = list(map(key_of, texts))
            self._folded += map(fold, filter(None, keys))
            self._labels.extend(compress(places, keys))
            self._nodes.extend(compress(nodes, keys))
            self._firsts.extend(_hash(key.partition(" ")[0]) for key in keys if key)
            self._counts.extend(key.count(" ") + 1 for key in keys if key)

    def write(self, directory: Path, name: str) -> tuple[Numbers, Numbers]:
        """Write the labels by folded key. Nothing can be written afterwards.

        Returns:
            For each label, the number of its key, and its node.
        """
        folded = np.array(self._folded, object)
        order = np.argsort(folded, kind="stable")
        folded = folded[order]
        self._folded = []
        is_first = np.ones(len(folded), bool)
        is_first[1:] = folded[1:] != folded[:-1]
        numbers = np.cumsum(is_first) - 1
        keys = folded[is_first].tolist()
        StringTable.write(directory, f"{name}.keys", keys)
        write_numbers(directory / f"{name}.starts.npy", starts_of(numbers, len(keys)))
        nodes = np.array(self._nodes, np.uint64)[order]
        write_numbers(directory / f"{name}.labels.npy", np.array(self._labels, np.uint64)[order])
        write_numbers(directory / f"{name}.nodes.npy", nodes)
        return numbers, nodes

    def lengths(self) -> _Lengths:
        return np.array(self._firsts, np.uint32), np.array(self._counts, np.uint32)


def _write_words(directory: Path, keys: StringTable, topics: Numbers) -> None:
    """Write the words of the keys that are topics, which are given by number."""
    is_topic = np.zeros(len(keys), bool)
    is_topic[topics] = True
    topic_keys = compress(enumerate(keys), is_topic)
    numbers = Numbering()
    words, counts, searched = array("I"), array("I"), array("I")
    for chunk in _chunks((key, folded) for key, folded in topic_keys if is_searched(folded)):
        searched.extend(key for key, _ in chunk)
        counts.extend(folded.count(" ") + 1 for _, folded in chunk)
        words.extend(map(numbers.__getitem__, " ".join([folded for _, folded in chunk]).split(" ")))
    listed = np.array(list(numbers), object)
    del numbers
    lengths = np.fromiter(map(len, listed), np.int64, len(listed))
    order = np.argsort(listed, kind="stable")
    order = order[np.argsort(lengths[order], kind="stable")]
    listed, lengths = listed[order].tolist(), lengths[order]
    StringTable.write(directory, "words", listed)
    write_numbers(
        directory / "word_letters.npy", np.fromiter(map(_letters_of, listed), np.uint64, len(listed))
    )
    write_numbers(directory / "word_lengths.npy", starts_of(lengths, int(lengths.max(initial=0)) + 1))
    ranks = np.empty(len(listed), np.uint32)
    ranks[order] = np.arange(len(listed))
    size = len(listed)
    # Sorting takes most of the memory, so what it does not need is given up before it.
    del listed, order
    columns = ranks[np.asarray(words)], *(np.repeat(column, counts) for column in (counts, searched))
    sizes = size + 1, int(columns[1].max(initial=0)) + 1, int(columns[2].max(initial=0)) + 1
    write_side(directory, "named", *distinct_rows(*columns, sizes=sizes), size)


def _write_lengths(directory: Path, lengths: Iterable[_Lengths]) -> None:
    hashes, counts = (np.concatenate(columns) for columns in zip(*lengths, strict=True))
    size = min(1 << max(len(hashes) - 1, 1).bit_length(), _MAX_ENTRIES)
    entries = np.zeros(size + 1, np.uint64)
    bits = np.uint64(1) << (np.minimum(counts, _MOST_TOKENS) - 1).astype(np.uint64)
    np.bitwise_or.at(entries, hashes & np.uint32(size - 1), bits)
    entries[-1] = counts.max(initial=0)
    write_numbers(directory / "first_tokens.npy", entries)


def _chunks(all_: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(all_)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk


def _letters_of(word: str) -> np.uint64:
    """A bit for each letter and digit of a word; other characters share the rest of the bits."""
    bits = 0
    for character in set(word):
        bits |= 1 << _LETTERS.get(character, len(_LETTERS) + ord(character) % (64 - len(_LETTERS)))
    return np.uint64(bits)


def _hash(token: str) -> int:
    return zlib.crc32(token.encode("utf-8", "surrogatepass"))

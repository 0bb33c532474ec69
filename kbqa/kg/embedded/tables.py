"""Tables of numbers and strings in memory-mapped files.

Opening a table takes constant time, several processes share one copy, and parts that
nobody reads need not be in memory.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

_CHUNK = 1 << 16


def write_numbers(path: Path, numbers: npt.NDArray[np.integer]) -> None:
    """Write whole numbers from 0 on, in 4 bytes each if they fit, else in 8."""
    wide = numbers.size > 0 and int(numbers.max()) >= 2**32
    np.save(path, numbers.astype(np.uint64 if wide else np.uint32, copy=False))


def map_numbers(path: Path) -> memoryview:
    """Map the output of `write_numbers`. Reading single items of a view is several times faster than
    of an array."""
    return memoryview(np.load(path, mmap_mode="r"))


class StringTable:
    """A table of strings with look-up in both directions: number → string, string → numbers.

    The hash table has at least as many buckets as strings; `buckets` gives the place in
    `slots` where the string numbers of each bucket begin.
    """

    def __init__(self, directory: Path, name: str) -> None:
        with (directory / f"{name}.utf8").open("rb") as file:
            empty = file.seek(0, 2) == 0
            self._text = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts = map_numbers(directory / f"{name}.starts.npy")
        self._buckets = map_numbers(directory / f"{name}.buckets.npy")
        self._slots = map_numbers(directory / f"{name}.slots.npy")
        self._mask = len(self._buckets) - 2

    @staticmethod
    def write(directory: Path, name: str, strings: Sequence[str]) -> None:
        """Write a table; a string's number is its index. A string may occur more than once."""
        lengths = np.zeros(len(strings) + 1, np.uint64)
        hashes = np.empty(len(strings), np.uint32)
        with (directory / f"{name}.utf8").open("wb") as file:
            for start, chunk in _chunks(strings):
                end = start + len(chunk)
                lengths[start + 1 : end + 1] = [len(text) for text in chunk]
                hashes[start:end] = [zlib.crc32(text) for text in chunk]
                file.write(b"".join(chunk))
        num_buckets = 1 << max(len(strings) - 1, 1).bit_length()
        hashes &= np.uint32(num_buckets - 1)
        slots = np.argsort(hashes, kind="stable")
        write_numbers(directory / f"{name}.starts.npy", np.cumsum(lengths))
        write_numbers(directory / f"{name}.slots.npy", slots)
        write_numbers(directory / f"{name}.buckets.npy", starts_of(hashes[slots], num_buckets))

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, number: int) -> str:
        return self._text[self._starts[number] : self._starts[number + 1]].decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _CHUNK):
            starts = self._starts[first : min(first + _CHUNK, len(self)) + 1].tolist()
            chunk = self._text[starts[0] : starts[-1]]
            for start, end in pairwise(start - starts[0] for start in starts):
                yield chunk[start:end].decode("utf-8", "surrogatepass")

    def joined(self, first: int, end: int) -> str:
        """The strings with numbers from `first` to before `end`, one after another."""
        return self._text[self._starts[first] : self._starts[end]].decode("utf-8", "surrogatepass")

    def find(self, string: str) -> list[int]:
        """The numbers of the strings that equal `string`, ascending."""
        encoded = string.encode("utf-8", "surrogatepass")
        bucket = zlib.crc32(encoded) & self._mask
        text, starts = self._text, self._starts
        slots = self._slots[self._buckets[bucket] : self._buckets[bucket + 1]]
        return [number for number in slots if text[starts[number] : starts[number + 1]] == encoded]


def starts_of(sorted_keys: npt.NDArray[np.integer], num_keys: int) -> npt.NDArray[np.int64]:
    """The index at which each key from 0 on begins in `sorted_keys`, and the end: [num_keys + 1]."""
    counts = np.bincount(sorted_keys, minlength=num_keys)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _chunks(strings: Sequence[str]) -> Iterator[tuple[int, list[bytes]]]:
    remaining = iter(strings)
    for start in range(0, len(strings), _CHUNK):
        yield start, [text.encode("utf-8", "surrogatepass") for text in islice(remaining, _CHUNK)]

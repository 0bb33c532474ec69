"""A cache of the keys and values of token prefixes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from torch import Tensor

_BLOCK = 16  # tokens between two points at which a prefix can be found again


class PrefixCache:
    """Finds the longest known prefix of a token sequence, in whole blocks.

    Args:
        capacity: maximum tokens; the least recently used sequences are evicted first.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._tokens = 0
        self._entries: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        self._blocks: dict[int, tuple[int, ...]] = {}  # hash of a prefix -> the entry that has it

    def find(self, token_ids: Sequence[int]) -> Tensor | None:
        """Keys and values [..., length, D] of the longest known prefix, or None."""
        for length, digest in reversed(list(_prefixes(token_ids))):
            entry = self._blocks.get(digest)
            if entry is not None and entry[:length] == tuple(token_ids[:length]):
                self._entries.move_to_end(entry)
                return self._entries[entry][..., :length, :]
        return None

    def add(self, token_ids: Sequence[int], known: Tensor) -> None:
        """Keep `known`, the keys and values of all of `token_ids`."""
        entry = tuple(token_ids)
        if len(entry) < _BLOCK or len(entry) > self._capacity or entry in self._entries:
            return
        self._entries[entry] = known
        self._tokens += len(entry)
        for _, digest in _prefixes(entry):
            self._blocks[digest] = entry
        while self._tokens > self._capacity:
            self._evict()

    def clear(self) -> None:
        self._entries.clear()
        self._blocks.clear()
        self._tokens = 0

    def _evict(self) -> None:
        entry, _ = self._entries.popitem(last=False)
        self._tokens -= len(entry)
        for _, digest in _prefixes(entry):
            if self._blocks.get(digest) == entry:
                del self._blocks[digest]


def _prefixes(token_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(length, hash) of each prefix of whole blocks, shortest first."""
    digest = 0
    for end in range(_BLOCK, len(token_ids) + 1, _BLOCK):
        digest = hash((digest, tuple(token_ids[end - _BLOCK : end])))
        yield end, digest

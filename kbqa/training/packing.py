"""Packs sequences into rows of bounded length, in which shared prefixes are computed once.

In lexicographic order, sequences with a common prefix are adjacent, so that each adds to its row only
what it does not share with the previous one:

    sequence 0:  prompt | turn | observation | turn       shared 0
    sequence 1:                              | turn       shared: up to the observation
    sequence 2:         | turn                            shared: the prompt

Such prefixes are the prompt of a group, the common turns of a tree's branches, and instructions that
all questions begin with. A row without shared prefixes is a plain concatenation; nothing is padded.

Shapes: T tokens of a row, M policy tokens of its sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor


class RowSegment(NamedTuple):
    """What a sequence adds to its row.

    Attributes:
        shared: length of the prefix that it shares with the previous sequence of the row.
        own: tokens after that prefix, at least one.
    """

    shared: int
    own: int


@dataclass(frozen=True, slots=True)
class Row:
    """Sequences that are computed together.

    Attributes:
        members: indices of the sequences, in the order of their policy tokens.
        token_ids: [T], the segments one after the other.
        positions: [T], of each token within its sequence.
        until: [T], of each token the position in the row from which on no token sees it: the start of the
            first later segment that does not share it, or T.
        segments: their lengths sum up to T.
        sources: [M], position in the row of the token before each policy token.
        targets: [M], the policy tokens.
    """

    members: tuple[int, ...]
    token_ids: Tensor
    positions: Tensor
    until: Tensor
    segments: tuple[RowSegment, ...]
    sources: Tensor
    targets: Tensor

    def sequences(self) -> Iterator[tuple[int, int, list[int]]]:
        """For each segment: its start in the row, its first position, and its whole sequence."""
        ids, sequence, start = self.token_ids.tolist(), list[int](), 0
        for segment in self.segments:
            sequence = [*sequence[: segment.shared], *ids[start : start + segment.own]]
            yield start, segment.shared, sequence
            start += segment.own

    def to(self, device: torch.device) -> Row:
        """The row on a device."""
        moved = {
            name: getattr(self, name).to(device, non_blocking=True)
            for name in ("token_ids", "positions", "until", "sources", "targets")
        }
        return replace(self, **moved)


def pack(
    sequences: Sequence[Sequence[int]], masks: Sequence[Sequence[bool]], token_budget: int
) -> Iterator[Row]:
    """Rows that hold every sequence once.

    Args:
        sequences: token ids.
        masks: of each sequence, True at policy tokens; never at position 0. Tokens after the last policy
            token are left out, and so are sequences without policy tokens.
        token_budget: maximum tokens of a row; a longer sequence gets its own row.
    """
    row = _RowBuilder()
    for index in sorted(range(len(sequences)), key=lambda at: tuple(sequences[at])):
        policy = [position for position, masked in enumerate(masks[index]) if masked]
        if not policy:
            continue
        read = sequences[index][: policy[-1]]  # the last token is predicted, never read
        shared = row.shared(read)
        if row.token_ids and len(row.token_ids) + len(read) - shared > token_budget:
            yield row.build()
            row, shared = _RowBuilder(), 0
        row.add(index, read, shared, policy, [sequences[index][position] for position in policy])
    if row.token_ids:
        yield row.build()


@dataclass(slots=True)
class _RowBuilder:
    """A row under construction; `latest` is the last segment's sequence, `places` where in the row it is."""

    members: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    until: list[int] = field(default_factory=list)
    segments: list[RowSegment] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    latest: Sequence[int] = ()
    places: list[int] = field(default_factory=list)

    def shared(self, sequence: Sequence[int]) -> int:
        """Length of the prefix that a sequence shares with the latest one."""
        count = 0
        for ours, theirs in zip(self.latest, sequence, strict=False):
            if ours != theirs:
                break
            count += 1
        return count

    def add(
        self, index: int, sequence: Sequence[int], shared: int, policy: Sequence[int], targets: Sequence[int]
    ) -> None:
        self.members.append(index)
        start, own = len(self.token_ids), len(sequence) - shared
        if own:  # else it equals the latest sequence or a prefix of it
            self._leave(shared)
            self.token_ids.extend(sequence[shared:])
            self.positions.extend(range(shared, len(sequence)))
            self.segments.append(RowSegment(shared, own))
            self.latest = sequence
            self.until.extend([0] * own)  # until a segment leaves them
            self.places[shared:] = range(start, start + own)
        self.sources.extend(self.places[position - 1] for position in policy)
        self.targets.extend(targets)

    def _leave(self, shared: int) -> None:
        """From here on, no token sees the latest sequence after its first `shared` tokens."""
        for place in self.places[shared:]:
            self.until[place] = len(self.token_ids)

    def build(self) -> Row:
        self._leave(0)
        return Row(
            tuple(self.members),
            torch.tensor(self.token_ids),
            torch.tensor(self.positions),
            torch.tensor(self.until),
            tuple(self.segments),
            torch.tensor(self.sources),
            torch.tensor(self.targets),
        )

"""Padded batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def micro_batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Batches of sequences, as indices: similar lengths, and a padded size within a budget.

    Args:
        lengths: tokens of each sequence.
        token_budget: maximum padded tokens of a batch; a longer sequence forms its own batch.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Sorted by length: the newcomer is the longest, so it sets the padded width.
        if batch and (len(batch) + 1) * lengths[index] > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def pad(sequences: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """[B, T], padded on the right with zeros."""
    width = max(map(len, sequences))
    padded = torch.zeros(len(sequences), width, dtype=dtype)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = torch.tensor(sequence, dtype=dtype)
    return padded

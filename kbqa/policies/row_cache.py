"""Keys and values of the rows that an engine computes together.

Shapes: b rows of one forward, T new tokens, H key-value heads, D head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class RowCache:
    """Keys and values of all rows, [layers, 2, rows, H, max_length, D], as a cache of transformers.

    It offers the two methods that a transformers model calls on a cache.

    Args:
        config: the model's configuration.
        rows: maximum number of rows.
        max_length: maximum tokens of a row.
    """

    is_compileable = False

    def __init__(self, config: Any, rows: int, max_length: int) -> None:
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.capacity = rows
        # Padding of a prefill batch may point past the end; those positions land in the margin.
        self._max_length = max_length
        self._data = torch.zeros(config.num_hidden_layers, 2, rows, heads, max_length + 1, width)
        self._first = self._reach = 0
        self._rows = self._positions = torch.zeros(1)

    def aim(self, first: int, positions: Tensor, reach: int) -> None:
        """Aim the next forward: it writes rows from `first`, at `positions` [b, T], and reads [0, reach)."""
        self._first, self._reach = first, reach
        self._rows = torch.arange(first, first + positions.shape[0])[:, None]
        self._positions = positions.clamp(max=self._max_length)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [b, H, T, D] and return everything that the rows may read, [b, H, reach, D]."""
        stored = self._data[layer]
        stored[0][self._rows, :, self._positions] = keys.transpose(1, 2)
        stored[1][self._rows, :, self._positions] = values.transpose(1, 2)
        rows = slice(self._first, self._first + keys.shape[0])
        return stored[0][rows, :, : self._reach], stored[1][rows, :, : self._reach]

    def get_seq_length(self, layer: int = 0) -> int:
        return self._reach

    def read(self, row: int, length: int) -> Tensor:
        """A copy of a row's first positions, [layers, 2, H, length, D]."""
        return self._data[:, :, row, :, :length].clone()

    def write(self, row: int, known: Tensor) -> None:
        """Begin a row with a result of `read`."""
        self._data[:, :, row, :, : known.shape[-2]] = known

    def copy(self, source: int, target: int, length: int) -> None:
        """Begin a row with the first positions of another."""
        self._data[:, :, target, :, :length] = self._data[:, :, source, :, :length]

"""Attention over a row of sequences that share prefixes (`kbqa.training.packing`).

On a GPU, where every call of a kernel costs time that a short segment cannot fill, a layer is one call for
the whole row, whatever the number of branches: flex attention (Dong et al. 2024), told which blocks of the
T x T scores hold something to compute. On a CPU, a layer is one call per segment, over exactly the keys that
it may see: no score is computed in vain, which is faster there than every single call that was measured
(docs/measurements/training-step.md).

Neither builds a T x T mask or repeats the keys and values of grouped queries. Autograd sums the gradients of
shared keys and values, as for any tensor that is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from kbqa.training.packing import Row, RowSegment

_NAME = "kbqa_rows"
# Tokens along each side of a block; the default of flex attention, whose kernels' tiles divide it.
_BLOCK = 128


@dataclass(frozen=True, slots=True)
class SegmentMask:
    """What each segment of a row sees.

    Attributes:
        segments: those of the row.
        bias: [O, S + O], added to the scores of the last O keys and the S before them: the mask of the
            longest segment that shares a prefix, after the longest shared prefix. That of every other
            segment is a part of it.
    """

    segments: Sequence[RowSegment]
    bias: Tensor

    @classmethod
    def of(cls, row: Row) -> SegmentMask:
        branches = [segment for segment in row.segments if segment.shared]
        own = max((branch.own for branch in branches), default=0)
        shared = max((branch.shared for branch in branches), default=0)
        bias = torch.full((own, shared + own), float("-inf"), device=row.token_ids.device)
        return cls(row.segments, bias.triu_(1 + shared))

    def part(self, segment: RowSegment) -> Tensor:
        """The mask [own, shared + own] of a segment."""
        longest = self.bias.shape[1] - self.bias.shape[0]
        return self.bias[: segment.own, longest - segment.shared : longest + segment.own]


def visibility(row: Row, window: int | None) -> BlockMask | SegmentMask:
    """What the tokens of a row attend to, in the form that the attention of its device takes.

    It is made once for all layers, and passed as `visible` to a model that `attend_by_rows` has prepared.

    Args:
        window: tokens of the model's sliding window, if it has one.

    Raises:
        ValueError: a sequence is longer than the window.
    """
    if window is not None and any(sum(segment) > window for segment in row.segments):
        raise ValueError(f"a sequence is longer than the model's sliding window of {window} tokens")
    return SegmentMask.of(row) if row.token_ids.device.type == "cpu" else block_mask(row.until)


def block_mask(until: Tensor) -> BlockMask:
    """The mask of a row for flex attention: key k is visible to the queries q with k <= q < until[k].

    A block of scores is computed if any of its pairs is visible, and without asking for each pair if all are.
    `create_block_mask` finds the same blocks from all T x T pairs.

    Args:
        until: [T]; see `Row`.
    """

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < until[key])

    length = len(until)
    blocks = functional.pad(until, (0, -length % _BLOCK)).view(-1, _BLOCK)
    begins = torch.arange(len(blocks), device=until.device)[:, None] * _BLOCK  # of the blocks of queries
    some = (blocks.amax(1) > begins).tril()
    every = (blocks.amin(1) >= begins + _BLOCK).tril(-1)
    return BlockMask.from_kv_blocks(
        *_listed(some & ~every), *_listed(every), _BLOCK, sees, seq_lengths=(length, length)
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """The number of set blocks of keys in each row, and all blocks of keys, the set ones first."""
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[None, None], order.int()[None, None]


def attend_by_rows(model: Any) -> None:
    """Let a transformers model accept `visible`; without it, its attention is unchanged.

    Saved files are not affected.
    """
    if model.config._attn_implementation != _NAME:
        model.set_attn_implementation(_NAME)


def row_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    visible: BlockMask | SegmentMask | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention over a row, as an attention function of transformers.

    Args:
        query: [1, H, T, D].
        key, value: [1, G, T, D], with G a divisor of H.

    Returns:
        The output [1, T, H, D], and None in place of attention weights.
    """
    if visible is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return output, None
    # Under autocast, rotary embedding leaves queries and keys in a wider dtype than values.
    query, key = query.to(value.dtype), key.to(value.dtype)
    if isinstance(visible, BlockMask):
        kernel: Any = flex_attention if torch.compiler.is_compiling() else _compiled()
        grouped = query.shape[1] != key.shape[1]
        output = kernel(query, key, value, block_mask=visible, scale=scaling, enable_gqa=grouped)
    else:
        output = _by_segments(query, key, value, visible, scaling)
    return output.transpose(1, 2), None


@cache
def _compiled() -> Callable[..., Tensor]:
    """Flex attention as one kernel; without the compiler it builds all T x T scores.

    Not made on import, because the compiler takes seconds to load.
    """
    return torch.compile(flex_attention)


def _by_segments(
    query: Tensor, key: Tensor, value: Tensor, mask: SegmentMask, scaling: float | None
) -> Tensor:
    """[1, H, T, D], from one call per segment: over the prefix that it shares, and over itself."""
    lengths = [segment.own for segment in mask.segments]
    parts = [torch.split(tensor, lengths, dim=2) for tensor in (query, key, value)]
    outputs = []
    keys = values = value[:, :, :0]
    for segment, q, k, v in zip(mask.segments, *parts, strict=True):
        if segment.shared:
            k = torch.cat((keys[:, :, : segment.shared], k), dim=2)
            v = torch.cat((values[:, :, : segment.shared], v), dim=2)
        keys, values = k, v
        outputs.append(
            functional.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=mask.part(segment).to(v.dtype) if segment.shared else None,
                is_causal=not segment.shared,
                scale=scaling,
                enable_gqa=q.shape[1] != k.shape[1],
            )
        )
    return torch.cat(outputs, dim=2)


AttentionInterface.register(_NAME, row_attention)

"""Attention over a row of sequences that share prefixes (`kbqa.training.packing`).

A segment's tokens attend to their whole sequence: to the prefix shared with the previous sequence,
whose keys and values are already computed, and to the segment itself. Each segment is one call of a
fused kernel over exactly the keys that it may see, so no T x T mask is built and no score is computed
in vain. Autograd sums the gradients of shared keys and values, as for any tensor that is used twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from kbqa.training.packing import RowSegment

_NAME = "kbqa_segments"


def attend_by_segments(model: Any) -> None:
    """Let a transformers model accept `segments`; without them its attention is unchanged.

    Saved files are not affected.
    """
    if model.config._attn_implementation != _NAME:
        model.set_attn_implementation(_NAME)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Sequence[RowSegment] | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention by segments, as an attention function of transformers.

    Args:
        query: [1, H, T, D].
        key, value: [1, G, T, D], with G a divisor of H.

    Returns:
        The output [1, T, H, D], and None in place of attention weights.
    """
    if segments is None:
        output, _ = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            scaling=scaling,
            sliding_window=sliding_window,
            **options,
        )
        return output, None
    if sliding_window is not None and any(sum(segment) > sliding_window for segment in segments):
        raise ValueError(f"a sequence is longer than the model's sliding window of {sliding_window} tokens")
    lengths = [segment.own for segment in segments]
    # Under autocast, rotary embedding leaves queries and keys in a wider dtype than values.
    parts = [torch.split(tensor.to(value.dtype), lengths, dim=2) for tensor in (query, key, value)]
    outputs = []
    keys = values = value[:, :, :0]
    for segment, q, k, v in zip(segments, *parts, strict=True):
        if segment.shared:
            k = torch.cat((keys[:, :, : segment.shared], k), dim=2)
            v = torch.cat((values[:, :, : segment.shared], v), dim=2)
        keys, values = k, v
        outputs.append(
            functional.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=causal_lower_right(segment.own, sum(segment)),
                scale=scaling,
                enable_gqa=q.shape[1] != k.shape[1],
            )
        )
    return torch.cat(outputs, dim=2).transpose(1, 2), None


AttentionInterface.register(_NAME, _attention)

"""Top-k and nucleus truncation of a distribution.

The engine that samples and the trainer that scores samples use this one function, so that the ratio
of their probabilities is 1 for a policy that has not changed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbqa.policies.base import Truncation

_ROWS = 128  # rows sorted at a time: a sort needs several times the memory of its logits


def truncated(logits: Tensor, truncation: Truncation, drawn: Tensor | None = None) -> Tensor:
    """The logits [N, V] with -inf in place of every token that is not kept.

    Tokens as probable as the last kept one are kept, too. The softmax of the result renormalises; the
    choice of the kept tokens is not differentiated.

    Args:
        logits: [N, V], after the temperature.
        drawn: [N], a token of each row that is always kept: the one that was drawn. If the policy has
            changed since, the token may be outside of its nucleus; it then keeps its small
            probability instead of 0.
    """
    if not truncation.cuts:
        return logits
    with torch.no_grad():
        least = torch.cat([_least_kept(rows, truncation) for rows in torch.split(logits, _ROWS)])
        left_out = logits < least
        if drawn is not None:
            left_out.scatter_(-1, drawn[:, None], False)
    return logits.masked_fill(left_out, float("-inf"))


def _least_kept(logits: Tensor, truncation: Truncation) -> Tensor:
    """The lowest logit that is kept in each row, [N, 1]."""
    width = min(truncation.top_k or logits.shape[-1], logits.shape[-1])
    values = logits.topk(width).values  # descending
    if truncation.top_p >= 1:
        return values[:, -1:]
    probabilities = values.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    kept = (before < truncation.top_p).sum(-1, keepdim=True).clamp(min=1)
    return values.gather(-1, kept - 1)

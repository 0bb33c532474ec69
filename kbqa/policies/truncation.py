"""Top-k and nucleus sampling: what is left of a distribution.

An engine that draws from it and a trainer that asks how likely a draw was use this one
function, so that the ratio between them is 1 for a policy that has not changed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kbqa.policies.base import Truncation

_ROWS = 128  # sorted at a time: a vocabulary is wide, and a sort needs its size several times


def truncated(logits: Tensor, truncation: Truncation, drawn: Tensor | None = None) -> Tensor:
    """Logits after the temperature, [N, V], with -inf where a token is not kept.

    Tokens as likely as the last one that is kept stay too. The rest is renormalised by whoever
    takes the softmax; which tokens are kept is not differentiated.

    Args:
        drawn: [N], a token of each row that is kept in any case. A policy that has changed
            since may not count it to its nucleus any more; it was drawn all the same, and is
            given the little probability that it has instead of none.
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

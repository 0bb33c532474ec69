"""Log-probabilities of chosen tokens under a causal language model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def token_logprobs(
    model: Any, token_ids: Tensor, mask: Tensor, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy at masked tokens, each from the tokens before it.

    The vocabulary is only projected to where the mask is set. Padding is on the right,
    so causal attention never sees it.

    Args:
        token_ids: [B, T].
        mask: [B, T], bool; never set at position 0.
        entropy_gradient: whether the entropy is differentiable.

    Returns:
        Two tensors [M], in row order: log p of the token, and the entropy of its distribution.
    """
    hidden = model.model(input_ids=token_ids, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, :-1][mask[:, 1:]])
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    targets = token_ids[:, 1:][mask[:, 1:]]
    chosen = logprobs.gather(-1, targets[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logprobs.exp() * logprobs).sum(-1)
    return chosen, entropy

"""Log-probabilities of chosen tokens under a causal language model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kbqa.policies.base import Truncation
from kbqa.policies.truncation import truncated

_WHOLE = Truncation()


def token_logprobs(
    model: Any,
    token_ids: Tensor,
    mask: Tensor,
    *,
    entropy_gradient: bool = False,
    temperature: float = 1.0,
    truncation: Truncation = _WHOLE,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy at masked tokens, each from the tokens before it.

    Both are those of the distribution that tokens are drawn from, so that a ratio to
    behaviour log-probabilities compares like with like. With a truncation, the nucleus is that
    of the model at hand; the token that was drawn counts to it even if it has left it since.

    The vocabulary is only projected to where the mask is set. Padding is on the right,
    so causal attention never sees it.

    Args:
        token_ids: [B, T].
        mask: [B, T], bool; never set at position 0.
        entropy_gradient: whether the entropy is differentiable.
        temperature, truncation: with which the tokens were drawn.

    Returns:
        Two tensors [M], in row order: log p of the token, and the entropy of its distribution.
    """
    hidden = model.model(input_ids=token_ids, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, :-1][mask[:, 1:]])
    targets = token_ids[:, 1:][mask[:, 1:]]
    logits = logits.float() if temperature == 1 else logits.float() / temperature
    logprobs = torch.log_softmax(truncated(logits, truncation, targets), dim=-1)
    chosen = logprobs.gather(-1, targets[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        # A token without probability adds nothing, but 0 times minus infinity is no number.
        finite = logprobs.masked_fill(logprobs.isneginf(), 0.0) if truncation.cuts else logprobs
        entropy = -(logprobs.exp() * finite).sum(-1)
    return chosen, entropy

"""The projection of hidden states to the vocabulary, whose results are always fp32.

Rounded to bf16, a logit of 20 is off by up to 0.06, and so is a log-probability. With
`--hf-overrides '{"head_dtype": "float32"}'`, vLLM does not round: it multiplies operands in bf16 and adds the
products in fp32. This is the same computation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def fp32_logits(head: Any, hidden: Tensor) -> Tensor:
    """Logits [M, V] in fp32, of hidden states [M, width].

    Under autocast, the operands are rounded to its precision, as for any other matrix product.
    """
    device = hidden.device.type
    if (
        not torch.is_autocast_enabled(device)
        or type(head) is not nn.Linear
        or getattr(head, "bias", None) is not None
    ):
        logits: Tensor = head(hidden).float()
        return logits
    precision = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        product: Tensor = _Product.apply(  # type: ignore[no-untyped-call]
            hidden.to(precision), head.weight.to(precision)
        )
    return product


class _Product(torch.autograd.Function):
    """hidden @ weight.T, with fp32 sums of the products of 16-bit numbers."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        if hidden.is_cuda:  # nothing is copied in fp32
            return torch.mm(hidden, weight.T, out_dtype=torch.float32)
        return hidden.float() @ weight.float().T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight = ctx.saved_tensors
        gradient = gradient.to(hidden.dtype)
        return gradient @ weight, gradient.T @ hidden

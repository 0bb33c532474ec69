"""Linear layers that take the memory of bitsandbytes' 4-bit layers, without that library or a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_BLOCK = 64  # weights that share a scale; the scales are held in 8 bits, and theirs in 32 for 256 of them


class _FourBits(nn.Linear):
    """A frozen layer of which two weights share a byte."""

    def __init__(self, features_in: int, features_out: int, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = features_in, features_out
        number = features_in * features_out
        held = number // 2 + number // _BLOCK + 4 * number // (256 * _BLOCK)
        self.weight = nn.Parameter(torch.empty(held, dtype=torch.uint8), requires_grad=False)
        held_bias = None if bias is None else nn.Parameter(bias.to(torch.bfloat16), requires_grad=False)
        self.register_parameter("bias", held_bias)

    def forward(self, input: Tensor) -> Tensor:
        sizes = (self.in_features, self.out_features)
        output: Tensor = _Multiply.apply(input, self.weight, *sizes)  # type: ignore[no-untyped-call]
        return output


class _Multiply(torch.autograd.Function):
    """A product with weights that are expanded to bf16 for as long as it takes."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, features_in: int, features_out: int) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.shape, ctx.dtype = (features_out, features_in), input.dtype
        expanded = torch.empty(ctx.shape, dtype=torch.bfloat16, device=input.device)
        return input.to(torch.bfloat16) @ expanded.T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        expanded = torch.empty(ctx.shape, dtype=torch.bfloat16, device=gradient.device)
        return (gradient @ expanded).to(ctx.dtype), None, None, None


def hold_in_four_bits(model: Any) -> None:
    """Replace the layers that `kbqa.training.adapters.load_quantised` quantises, in place.

    All others are held in bf16, as they are in published bases.
    """
    for name, module in list(model.model.named_modules()):
        if type(module) is nn.Linear:
            parent, _, own = name.rpartition(".")
            setattr(
                model.model.get_submodule(parent),
                own,
                _FourBits(module.in_features, module.out_features, module.bias),
            )
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(torch.bfloat16)

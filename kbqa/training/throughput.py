"""How much of a GPU a training step uses: the model's products as a share of the GPU's peak (MFU).

By the usual count: for each token, 2 products for each weight forwards, 2 for the gradients of activations,
and 2 for the gradient of a weight that is trained; and 12 x width of each layer for each token that is
attended to. The embedding is left out, since looking up is no product, and so is whatever is computed again:
activations, and probabilities under the reference and under the weights with which an update begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from kbqa.policies.chooser.model import Chooser
from kbqa.training.likelihood import likelihood_of
from kbqa.training.packing import Row
from kbqa.training.ranks import Ranks

_TRAINED, _FROZEN = 6, 4  # products for each weight and token
# Dense bf16 FLOP/s by the makers' data sheets.
_PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}


def peak(device: torch.device) -> float | None:
    """FLOP/s of a GPU in bf16; None for a CPU, and if that is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((flops for known, flops in _PEAKS.items() if known in name), None)


def step_flops(model: Any, rows: Sequence[Row]) -> float | None:
    """Products of a step on these rows, forwards and backwards.

    None for a chooser, which encodes texts instead of tokens in sequence, and for weights in 4 bits.

    Args:
        model: as for `kbqa.training.grpo.grpo_step`.
    """
    likelihood = likelihood_of(model)
    whole = likelihood.model
    if isinstance(whole, Chooser) or getattr(whole, "is_quantized", False):
        return None
    config, layers = whole.config, list(likelihood.layers)
    a_token = _products(p for layer in layers for p in layer.parameters())
    attended = 12.0 * len(layers) * int(config.hidden_size)
    head = _products(whole.lm_head.parameters())
    return sum(
        len(row.token_ids) * a_token + _attended(row) * attended + len(row.targets) * head for row in rows
    )


def utilisation(flops: float | None, seconds: float, ranks: Ranks) -> float | None:
    """The share of the peak of all GPUs; None where it is not known.

    Args:
        flops: computed by all processes together.
    """
    most = peak(ranks.device)
    return None if flops is None or most is None or not seconds else flops / (seconds * ranks.size * most)


def _attended(row: Row) -> int:
    """Pairs of a token and one before it in its sequence."""
    return sum(own * shared + own * (own - 1) // 2 for shared, own in row.segments)


def _products(parameters: Iterable[nn.Parameter]) -> float:
    return float(sum((_TRAINED if p.requires_grad else _FROZEN) * p.numel() for p in parameters))

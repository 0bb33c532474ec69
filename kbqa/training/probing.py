"""Takes the probe of a version from the model in training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from kbqa.policies.probe import Precision, Probe

_LIKELY = 64  # most probable tokens of a position, over which the errors of its logits are measured


@torch.inference_mode()
def take_probe(model: Any, token_ids: Sequence[int], *, weights: Precision = "float32") -> Probe:
    """Score a text, once exactly and once as an engine in bf16 does.

    Args:
        model: the causal language model in training; dropout is off meanwhile.
        token_ids: the text; every token but the first is scored.
        weights: precision of the weights in the version's files.
    """
    ids = torch.tensor([token_ids], device=next(model.parameters()).device)
    training = model.training
    model.eval()
    try:
        exact = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        with _in_bf16(model):
            rounded = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
    finally:
        model.train(training)
    targets = ids[0, 1:]
    logprobs = exact.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return Probe(
        tuple(ids[0].tolist()), tuple(logprobs.tolist()), expected_gap(exact, rounded, targets), weights
    )


def expected_gap(exact: Tensor, rounded: Tensor, targets: Tensor) -> float:
    """Mean absolute error of log-probabilities to be expected of logits that are rounded as `rounded` is.

    Rounding errors d of the logits, independent and with standard deviation s, change log p_t by
    d_t - sum_j p_j d_j, whose standard deviation is s sqrt(1 - 2 p_t + sum_j p_j²). A single measurement of a
    token that is nearly certain says little; s is measured over many tokens.

    Args:
        exact, rounded: logits [T, V].
        targets: token t of each position, [T].
    """
    probabilities = exact.softmax(-1)
    target = probabilities.gather(-1, targets[:, None])[:, 0]
    deviation = (1 - 2 * target + probabilities.square().sum(-1)).clamp(min=0).sqrt()
    likely = exact.topk(min(_LIKELY, exact.shape[-1])).indices
    errors = (rounded - exact).gather(-1, likely)
    noise = (errors - errors.mean(-1, keepdim=True)).square().mean().sqrt()
    return float(math.sqrt(2 / math.pi) * noise * deviation.mean())


@contextmanager
def _in_bf16(model: Any) -> Iterator[None]:
    """Let a model compute as engines in bf16 do; autocast alone leaves in fp32 what passes between layers."""

    def rounded(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
        return output.bfloat16().to(output.dtype)

    modules = [model.get_input_embeddings(), *model.get_decoder().layers]
    hooks = [module.register_forward_hook(rounded) for module in modules]
    try:
        with torch.autocast(model.device.type, torch.bfloat16):
            yield
    finally:
        for hook in hooks:
            hook.remove()

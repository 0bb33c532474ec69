"""Takes the probe of a version from the model in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kbqa.policies.probe import Probe

_LENGTH = 8  # tokens of the continuation; each costs a forward pass


@torch.inference_mode()
def take_probe(model: Any, prompt_ids: Sequence[int]) -> Probe:
    """Let a causal language model continue a prompt greedily, and record its log-probabilities.

    Args:
        model: the model in training; dropout is off meanwhile.
    """
    device = next(model.parameters()).device
    ids, logprobs = list(prompt_ids), []
    training = model.training
    model.eval()
    try:
        for _ in range(_LENGTH):
            logits = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0, -1]
            logprob, token = logits.float().log_softmax(-1).max(-1)
            ids.append(int(token))
            logprobs.append(float(logprob))
    finally:
        model.train(training)
    return Probe(tuple(ids), tuple(logprobs))

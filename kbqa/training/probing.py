"""What the model in training makes of a few tokens, as its version will state it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kbqa.policies.probe import Probe

_LENGTH = 8  # tokens of the continuation; each costs a forward pass


@torch.inference_mode()
def take_probe(model: Any, prompt_ids: Sequence[int]) -> Probe:
    """Let a causal language model continue a prompt greedily, and write down how sure it is.

    Args:
        model: as it is trained; what its training drops at random stays.
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

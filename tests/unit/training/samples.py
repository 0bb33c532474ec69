"""Training samples of a small model."""

from __future__ import annotations

import random

import torch

from kbqa.training.likelihood import token_logprobs
from kbqa.trajectory import TrainingSample
from tests.unit.policies_fixtures import make_model


def sample(length: int, start: int, advantage: float, seed: int = 0) -> TrainingSample:
    """Random tokens, from `start` on written by the model of `make_model`."""
    rng, model = random.Random(seed), make_model()
    ids = tuple(rng.randrange(20, model.config.vocab_size) for _ in range(length))
    mask = tuple(i >= start for i in range(length))
    with torch.no_grad():
        logprobs = iter(token_logprobs(model, torch.tensor([ids]), torch.tensor([mask]))[0].tolist())
    behaviour = tuple(next(logprobs) if m else 0.0 for m in mask)
    return TrainingSample(ids, mask, behaviour, tuple(advantage if m else 0.0 for m in mask))

"""Draws a token from each of several distributions, each with its own random stream."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from kbqa.policies.base import SamplingParams, Truncation
from kbqa.policies.truncation import truncated

_WHOLE = Truncation()


def draw(
    logits: Tensor, params: Sequence[SamplingParams], streams: Sequence[random.Random]
) -> tuple[list[int], list[float]]:
    """One draw for each row.

    Args:
        logits: [B, V]; the first of a row is finite.
        params: how each row is drawn; temperature 0 takes the most probable column.
        streams: random stream of each row; one number is taken from each, so that a draw does not depend
            on the rest of the batch.

    Returns:
        The columns drawn, and their log-probabilities under the distribution that they were drawn
        from; at temperature 0, under temperature 1.
    """
    temperatures = torch.tensor([p.temperature for p in params])[:, None]
    greedy = temperatures == 0
    scaled = logits / torch.where(greedy, 1.0, temperatures)
    cuts = [p.truncation if p.truncation.cuts and p.temperature > 0 else _WHOLE for p in params]
    for truncation in set(cuts) - {_WHOLE}:
        rows = [row for row, cut in enumerate(cuts) if cut == truncation]
        scaled[rows] = truncated(scaled[rows], truncation)
    logprobs = scaled.log_softmax(-1)
    draws = torch.tensor([[stream.random()] for stream in streams])
    cumulative = logprobs.exp().cumsum(-1)
    sampled = torch.searchsorted(cumulative, draws * cumulative[:, -1:])
    sampled = sampled.clamp_(max=logits.shape[-1] - 1)
    chosen = torch.where(greedy, logits.argmax(-1, keepdim=True), sampled)
    return chosen[:, 0].tolist(), logprobs.gather(-1, chosen)[:, 0].tolist()

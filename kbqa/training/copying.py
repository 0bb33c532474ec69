"""The copying warm-up: every small policy first learns to copy, whatever the graph.

A randomly initialised transformer that is trained on an agent's dialect right away memorises names
and never learns to copy them from the question and the observations. Repeated random tokens leave
nothing to memorise, and the attention heads that copy (induction heads; Olsson et al. 2022) form
within minutes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kbqa.training.likelihood import token_logprobs

_RISE = 30  # steps over which the learning rate rises


@dataclass(frozen=True, slots=True)
class WarmUpConfig:
    """Options of the copying warm-up.

    Attributes:
        steps: maximum optimiser steps. Seeds differ by hundreds of steps in when the heads form, and a
            cold start that begins before that does not recover.
        batch_tokens: tokens per step.
        length: shortest and longest sequence, in tokens. Training begins with the shortest, where there
            is little to attend to; while copying works, sequences grow by the factor `growth`.
        scattered_from: length from which half of the steps train on `scattered` sequences.
        copied_loss: smoothed loss of periodic sequences below which copying works.
        learned_loss: smoothed loss of scattered sequences below which the warm-up ends, once they have
            the longest length.
    """

    steps: int = 1200
    batch_tokens: int = 1024
    length: tuple[int, int] = (16, 256)
    growth: float = 1.03
    scattered_from: int = 64
    learning_rate: float = 3e-3
    copied_loss: float = 1.0
    learned_loss: float = 0.4


def periodic(vocabulary: range, length: int, rng: random.Random) -> tuple[list[int], list[bool]]:
    """A random stretch of tokens, repeated to the end.

    Short sequences have few possible periods, so counting positions suffices. In longer ones, only
    looking up what followed the same token before works.

    Returns:
        Token ids [length] and a mask [length], True where earlier tokens determine the token.
    """
    period = rng.randint(6, length // 2)
    stretch = rng.choices(vocabulary, k=period)
    ids = (stretch * (length // period + 1))[:length]
    return ids, [position > period for position in range(length)]


def scattered(vocabulary: range, length: int, rng: random.Random) -> tuple[list[int], list[bool]]:
    """Short stretches of tokens, new or repeated, like the names in an episode; returns as `periodic`."""
    ids: list[int] = []
    mask: list[bool] = []
    stretches: list[list[int]] = []
    while len(ids) < length:
        if stretches and rng.random() < 0.6:
            stretch = rng.choice(stretches)
            mask.extend([False, *[True] * (len(stretch) - 1)])
        else:
            stretch = rng.choices(vocabulary, k=rng.randint(3, 12))
            stretches.append(stretch)
            mask.extend([False] * len(stretch))
        ids.extend(stretch)
    return ids[:length], mask[:length]


def warm_up(
    model: Any,
    vocabulary: range,
    config: WarmUpConfig,
    seed: int,
    on_step: Callable[[int, float], None] | None = None,
) -> bool:
    """Teach `model` to copy, in place; returns whether it has learned to.

    Args:
        vocabulary: token ids to draw from (no tags).
        on_step: called with the number of finished steps and the loss.
    """
    rng = random.Random(f"copying/{seed}")
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=0.01, betas=(0.9, 0.98)
    )
    model.train()
    shortest, longest = config.length
    length, chance = float(shortest), math.log(len(vocabulary))
    smoothed = {periodic: chance, scattered: chance}
    learned = False
    for step in range(1, config.steps + 1):
        kind = scattered if length >= config.scattered_from and rng.random() < 0.5 else periodic
        batch = [kind(vocabulary, int(length), rng) for _ in range(config.batch_tokens // int(length))]
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * min(1.0, step / _RISE)
        logprobs, _ = token_logprobs(
            model, torch.tensor([ids for ids, _ in batch]), torch.tensor([mask for _, mask in batch])
        )
        loss = -logprobs.mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        smoothed[kind] = 0.9 * smoothed[kind] + 0.1 * loss.item()
        if on_step is not None:
            on_step(step, loss.item())
        learned = length >= longest and smoothed[scattered] < config.learned_loss
        if learned:
            break
        if kind is periodic and smoothed[periodic] < config.copied_loss:
            length = min(float(longest), length * config.growth)
    model.eval()
    return learned

"""The copying warm-up: what every small policy has to learn once, whatever the graph.

A randomly initialised transformer that is taught an agent's dialect right away
memorises names and never learns to copy them from question and observations. On
random tokens that come again there is nothing to memorise, and the attention
heads that copy (induction heads; Olsson et al. 2022) form within minutes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kbqa.training.likelihood import token_logprobs

_RISE = 30  # steps in which the learning rate rises


@dataclass(frozen=True, slots=True)
class WarmUpConfig:
    """Attributes:
    steps: optimiser steps at most. When the heads form differs between seeds by hundreds of
        steps, and an imitation that begins before they are sound does not recover.
    batch_tokens: tokens a step.
    length: shortest and longest sequence. Short ones come first, where there is little to
        attend to; whenever copying works, sequences grow by `growth`.
    scattered_from: length from which half of the sequences scatter short stretches.
    copied_loss: the smoothed loss of periodic sequences under which copying works.
    learned_loss: the smoothed loss of the longest scattered sequences under which it ends.
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
    """A random stretch, repeated to the end.

    Short sequences have few periods, which counting positions can learn; as they grow,
    only looking for what stood after the same token goes on working.

    Returns:
        Token ids [length] and a mask [length], True where a token follows from earlier ones.
    """
    period = rng.randint(6, length // 2)
    stretch = rng.choices(vocabulary, k=period)
    ids = (stretch * (length // period + 1))[:length]
    return ids, [position > period for position in range(length)]


def scattered(vocabulary: range, length: int, rng: random.Random) -> tuple[list[int], list[bool]]:
    """Short stretches, each new or seen before, as names are in an episode; as `periodic`."""
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

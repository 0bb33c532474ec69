"""Supervised fine-tuning on whole episodes, observations masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kbqa.policies.chooser.model import Chooser
from kbqa.training.learning_rate import Decay, LearningRate
from kbqa.training.likelihood import Precision, likelihood_of, token_logprobs
from kbqa.training.packing import pack


@dataclass(frozen=True, slots=True)
class Example:
    """One episode to imitate: token ids and a mask, True where the policy writes; both length T."""

    token_ids: tuple[int, ...]
    mask: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class SftConfig:
    """Options of supervised fine-tuning.

    Attributes:
        steps: maximum optimiser steps.
        batch: episodes per step.
        warm_up_steps: steps over which the learning rate rises linearly; the decay follows.
        decay, floor: kind of decay, and the share of the peak at which it ends; see
            `kbqa.training.learning_rate`.
        token_budget: maximum padded tokens of a micro-batch.
        learned_loss: if set, the learning rate stays at its peak until the smoothed loss is below this,
            and then cools down (warm-up, stable, decay; MiniCPM, Hu et al. 2024). For policies that
            learn what matters suddenly, at a step that is not known beforehand.
        cool_down_steps: steps of the cool-down, which ends the training.
        precision: of matrix products; with bf16, weights and results are still fp32.
    """

    steps: int = 600
    batch: int = 16
    learning_rate: float = 2e-3
    warm_up_steps: int = 20
    decay: Decay = "cosine"
    floor: float = 0.1
    weight_decay: float = 0.01
    token_budget: int = 8192
    learned_loss: float | None = None
    cool_down_steps: int = 150
    precision: Precision = "fp32"


def learning_rate(step: int, config: SftConfig) -> float:
    """The learning rate of a step, counted from 0: a linear warm-up, then the decay to the floor."""
    rate = LearningRate(
        config.learning_rate, config.decay, warm_up_steps=config.warm_up_steps, floor=config.floor
    )
    return rate.at(step, config.steps)


class _StableThenCool:
    """A learning rate that stays at its peak until the loss is low, and then cools down."""

    def __init__(self, config: SftConfig, learned_loss: float) -> None:
        self._config, self._learned_loss = config, learned_loss
        self._smoothed: float | None = None
        self._cooling_from = config.steps - config.cool_down_steps

    def rate(self, step: int) -> float:
        config = self._config
        risen = min(1.0, (step + 1) / max(1, config.warm_up_steps))
        cooled = min(1.0, max(0, step - self._cooling_from) / config.cool_down_steps)
        return config.learning_rate * risen * (1 - (1 - config.floor) * cooled)

    def ends_with(self, step: int, loss: float) -> bool:
        """Take the loss of a step; returns whether that step was the last."""
        before = loss if self._smoothed is None else self._smoothed
        self._smoothed = 0.9 * before + 0.1 * loss
        if self._smoothed < self._learned_loss:
            self._cooling_from = min(self._cooling_from, step + 1)
        return step + 1 >= self._cooling_from + self._config.cool_down_steps


def fine_tune(
    model: Any,
    draw: Callable[[int], Sequence[Example]],
    config: SftConfig,
    on_step: Callable[[int, float], bool],
) -> None:
    """Maximise the likelihood of policy tokens, in place, on the model's device.

    Args:
        model: if it has an adapter (`kbqa.training.adapters`), only that is trained.
        draw: returns as many episodes as it is asked for.
        on_step: called with the number of finished steps and the loss; True ends the tuning.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(
        trained, lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.98)
    )
    device = trained[0].device
    course = None if config.learned_loss is None else _StableThenCool(config, config.learned_loss)
    for step in range(config.steps):
        model.train()
        examples = draw(config.batch)
        total = sum(sum(example.mask) for example in examples)
        loss_sum = 0.0
        optimiser.zero_grad()
        for logprobs in _likelihoods(model, examples, config, device):
            loss = -logprobs.sum() / total
            loss.backward()  # type: ignore[no-untyped-call]
            loss_sum += loss.item()
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, config) if course is None else course.rate(step)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        model.eval()
        if on_step(step + 1, loss_sum) or (course is not None and course.ends_with(step, loss_sum)):
            return


def _likelihoods(
    model: Any, examples: Sequence[Example], config: SftConfig, device: torch.device
) -> Iterator[Tensor]:
    """Log-probabilities of the policy tokens, one micro-batch after the other."""
    if isinstance(model, Chooser):
        # A chooser encodes each text once per row.
        likelihood = likelihood_of(model)
        masks = [example.mask for example in examples]
        for row in pack([example.token_ids for example in examples], masks, config.token_budget):
            yield likelihood(row.to(device), precision=config.precision)[0]
        return
    for batch in micro_batches([len(e.token_ids) for e in examples], config.token_budget):
        ids = pad([examples[i].token_ids for i in batch], torch.long).to(device)
        mask = pad([examples[i].mask for i in batch], torch.bool).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            yield token_logprobs(model, ids, mask)[0]


def micro_batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Batches of sequences, as indices: similar lengths, and a padded size within a budget.

    Args:
        lengths: tokens of each sequence.
        token_budget: maximum padded tokens of a batch; a longer sequence forms its own batch.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Sorted by length: the newcomer is the longest, so it sets the padded width.
        if batch and (len(batch) + 1) * lengths[index] > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def pad(sequences: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """[B, T], padded on the right with zeros."""
    width = max(map(len, sequences))
    padded = torch.zeros(len(sequences), width, dtype=dtype)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = torch.tensor(sequence, dtype=dtype)
    return padded

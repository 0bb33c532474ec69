"""Supervised fine-tuning on whole episodes, observations masked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kbqa.policies.chooser.model import Chooser
from kbqa.training.adapters import Adapter
from kbqa.training.learning_rate import Decay, LearningRate
from kbqa.training.likelihood import ChoiceLikelihood, Likelihood, Precision, token_logprobs
from kbqa.training.packing import pack
from kbqa.training.ranks import ALONE, Ranks

_MOST = 1.0  # norm of the gradient


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
        gradient_checkpointing: whether activations are recomputed for gradients instead of stored.
        adapter: the adapter to train instead of the weights; None trains the weights.
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
    gradient_checkpointing: bool = False
    adapter: Adapter | None = None


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
    imitate: Callable[[Sequence[Example], float], float],
    draw: Callable[[int], Sequence[Example]],
    config: SftConfig,
    on_step: Callable[[int, float], bool],
) -> None:
    """Raise the likelihood of policy tokens, step by step.

    Args:
        imitate: takes an optimiser step at a learning rate and returns its loss: `Learner.imitate`.
        draw: returns as many episodes as it is asked for.
        on_step: called with the number of finished steps and the loss; True ends the tuning.
    """
    course = None if config.learned_loss is None else _StableThenCool(config, config.learned_loss)
    for step in range(config.steps):
        rate = learning_rate(step, config) if course is None else course.rate(step)
        loss = imitate(draw(config.batch), rate)
        if on_step(step + 1, loss) or (course is not None and course.ends_with(step, loss)):
            return


def sft_optimiser(model: Any, config: SftConfig) -> torch.optim.AdamW:
    """AdamW over the trainable parameters."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        trained, lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.98)
    )


def sft_step(
    likelihood: Likelihood,
    optimiser: torch.optim.Optimizer,
    examples: Sequence[Example],
    config: SftConfig,
    ranks: Ranks = ALONE,
) -> float:
    """Raise the likelihood of policy tokens by one optimiser step, in place; returns the loss.

    Args:
        likelihood: that of `imitating`, which may be sharded over `ranks`. If it has an adapter
            (`kbqa.training.adapters`), only that is trained.
    """
    likelihood.train()
    total = sum(sum(example.mask) for example in examples)
    loss_sum = 0.0
    optimiser.zero_grad()
    for tensors, counts in ranks.share(list(_batches(likelihood, examples, config))):
        logprobs, _ = likelihood(*(tensor.to(ranks.device) for tensor in tensors), precision=config.precision)
        loss = -logprobs.sum() / total
        # FSDP averages gradients over the processes; the factor turns this into their sum.
        (loss * (ranks.size if counts else 0)).backward()
        loss_sum += loss.item() if counts else 0.0
    ranks.clip_gradients(likelihood.parameters(), _MOST)
    optimiser.step()
    likelihood.eval()
    return ranks.sum({"loss": loss_sum})["loss"]


class PaddedLikelihood(Likelihood):
    """The likelihood of a causal language model of transformers, on padded batches."""

    @property
    def layers(self) -> Iterable[nn.Module]:
        layers: Iterable[nn.Module] = self.model.model.layers
        return layers

    def forward(  # type: ignore[override]
        self, token_ids: Tensor, mask: Tensor, *, precision: Precision = "fp32"
    ) -> tuple[Tensor, Tensor]:
        """See `token_logprobs`."""
        with torch.autocast(token_ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
            return token_logprobs(self.model, token_ids, mask)


def imitating(model: Any) -> Likelihood:
    """The likelihood by which a model imitates, according to its kind."""
    return ChoiceLikelihood(model) if isinstance(model, Chooser) else PaddedLikelihood(model)


def _batches(
    likelihood: Likelihood, examples: Sequence[Example], config: SftConfig
) -> Iterator[tuple[Any, ...]]:
    """Arguments of the likelihood, one micro-batch after the other."""
    if isinstance(likelihood, ChoiceLikelihood):
        # A chooser encodes each text once per row.
        masks = [example.mask for example in examples]
        for row in pack([example.token_ids for example in examples], masks, config.token_budget):
            yield (row,)
        return
    for batch in micro_batches([len(e.token_ids) for e in examples], config.token_budget):
        ids = pad([examples[i].token_ids for i in batch], torch.long)
        yield ids, pad([examples[i].mask for i in batch], torch.bool)


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

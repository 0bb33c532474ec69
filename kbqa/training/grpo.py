"""One optimiser step of group relative policy optimisation; `kbqa.training.update` makes several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kbqa.objectives import SurrogateConfig, surrogate_loss, token_weights
from kbqa.policies.base import Truncation
from kbqa.training.batching import micro_batches, pad
from kbqa.training.likelihood import token_logprobs
from kbqa.trajectory import TrainingSample


@dataclass(frozen=True, slots=True)
class GrpoConfig:
    """Attributes:
    token_budget: most padded tokens of a micro-batch; bounds memory, not the result.
    temperature, truncation: with which the samples were drawn.
    mini_batch_questions: most questions that an optimiser step learns from; None for all of a batch.
    mini_batch_samples: likewise, most samples; where trees give a question any number of them.
    epochs: how often a batch is gone through.
    """

    learning_rate: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    token_budget: int = 16384
    surrogate: SurrogateConfig = field(default_factory=SurrogateConfig)
    betas: tuple[float, float] = (0.9, 0.999)
    temperature: float = 1.0
    truncation: Truncation = Truncation()
    mini_batch_questions: int | None = None
    mini_batch_samples: int | None = None
    epochs: int = 1


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did.

    Attributes:
        skipped: loss or gradient was not finite, so nothing was changed.
        metrics: loss, gradient_norm, entropy, kl, clip_fraction, ratio_mean, logprob_gap.
    """

    skipped: bool
    metrics: dict[str, float]


def make_optimiser(model: Any, config: GrpoConfig) -> torch.optim.AdamW:
    """AdamW; biases and norms are not decayed (KG-R1, appendix D.4)."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=config.learning_rate,
        betas=config.betas,
    )


def grpo_step(
    model: Any,
    optimiser: torch.optim.Optimizer,
    samples: Sequence[TrainingSample],
    config: GrpoConfig,
    reference: Any | None = None,
) -> StepResult:
    """Update `model` in place on samples from complete groups.

    Args:
        samples: those with spread; an empty sequence is an error.
        reference: the frozen model of the KL penalty; needed if its coefficient is not 0.
    """
    if not samples:
        raise ValueError("a step needs at least one sample")
    surrogate = config.surrogate
    weights = token_weights([sum(s.mask) for s in samples], surrogate.aggregation, surrogate.horizon)
    total = sum(sum(sample.mask) for sample in samples)
    likelihood = partial(token_logprobs, temperature=config.temperature, truncation=config.truncation)
    sums: dict[str, float] = {}
    loss_sum = 0.0
    optimiser.zero_grad()
    for batch in micro_batches([len(s.token_ids) for s in samples], config.token_budget):
        ids = pad([samples[i].token_ids for i in batch], torch.long)
        mask = pad([samples[i].mask for i in batch], torch.bool)
        behaviour = pad([samples[i].logprobs for i in batch], torch.float32)[mask]
        advantages = pad([samples[i].advantages for i in batch], torch.float32)[mask]
        row_weights = torch.tensor([weights[i] for i in batch])[:, None].expand(mask.shape)[mask]
        logprobs, entropy = likelihood(model, ids, mask, entropy_gradient=surrogate.entropy_coefficient != 0)
        reference_logprobs = None
        if reference is not None and config.surrogate.kl_coefficient:
            with torch.inference_mode():
                reference_logprobs, _ = likelihood(reference, ids, mask)
            reference_logprobs = reference_logprobs.clone()  # leaves inference mode
        loss, metrics = surrogate_loss(
            logprobs,
            behaviour,
            advantages,
            config.surrogate,
            weights=row_weights,
            reference_logprobs=reference_logprobs,
            entropies=entropy,
        )
        loss.backward()  # type: ignore[no-untyped-call]
        loss_sum += loss.item()
        metrics["entropy"] = entropy.detach().mean().item()
        metrics["logprob_gap"] = (logprobs.detach() - behaviour).abs().mean().item()
        share = mask.sum().item() / total
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + share * value
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm))
    healthy = math.isfinite(loss_sum) and math.isfinite(norm)
    if healthy:
        optimiser.step()
    return StepResult(not healthy, {"loss": loss_sum, "gradient_norm": norm, **sums})

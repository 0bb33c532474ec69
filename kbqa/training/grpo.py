"""One optimiser step of group relative policy optimisation; `kbqa.training.update` makes several."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from kbqa.objectives import SurrogateConfig, surrogate_loss, token_weights
from kbqa.policies.base import Truncation
from kbqa.training.adapters import Adapter, has_adapter, without_adapter
from kbqa.training.likelihood import Precision, likelihood_of
from kbqa.training.packing import Row, pack
from kbqa.training.ranks import ALONE, Ranks
from kbqa.training.throughput import step_flops
from kbqa.trajectory import TrainingSample


@dataclass(frozen=True, slots=True)
class GrpoConfig:
    """Options of an update.

    Attributes:
        token_budget: maximum tokens of a row (`kbqa.training.packing`); affects memory, not the result.
        temperature, truncation: with which the samples were drawn.
        mini_batch_questions: maximum questions of an optimiser step; None takes the whole batch.
        mini_batch_samples: maximum samples of an optimiser step; for trees, whose questions have varying
            numbers of samples.
        epochs: passes over a batch.
        precision: of matrix products; weights, moments and the loss are always fp32.
        gradient_checkpointing: whether activations are recomputed for gradients instead of stored.
        compile: whether the layers of a language model are compiled, which takes time at the first step;
            None compiles them on a GPU.
        adapter: the adapter to train instead of the weights; None trains the weights.
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
    precision: Precision = "fp32"
    gradient_checkpointing: bool = False
    compile: bool | None = None
    adapter: Adapter | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of an optimiser step.

    Attributes:
        skipped: loss or gradient was not finite, so no weight was changed.
        metrics: loss, gradient_norm, entropy, kl, clip_fraction (clip_low_fraction and
            clip_high_fraction), ratio_mean, ratio_max, logprob_gap; with an importance cap capped_fraction.
        flops: products of all processes; None where `kbqa.training.throughput` does not count them.
    """

    skipped: bool
    metrics: dict[str, float]
    flops: float | None = None


def make_optimiser(model: Any, config: GrpoConfig) -> torch.optim.AdamW:
    """AdamW over the trainable parameters, without weight decay on biases and norms (KG-R1, appendix D.4)."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim >= 2]
    vectors = [p for p in trained if p.ndim < 2]
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
    ranks: Ranks = ALONE,
    proximal: Sequence[Sequence[float]] | None = None,
) -> StepResult:
    """Update `model` in place on samples from complete groups.

    Token weights are computed over the whole step, so the result does not depend on how samples are
    packed into rows, or rows shared among processes.

    Args:
        model: a causal language model, or its `Likelihood` that is sharded over `ranks`.
        samples: samples of groups with spread; an empty sequence is an error.
        reference: the frozen model of the KL penalty, in the same form as `model`. Needed if the
            penalty's coefficient is not 0, unless the model holds an adapter: the model without its
            adapter is then the reference.
        proximal: the result of `proximal_logprobs` for these samples; None if the weights are still those
            with which the update began.
    """
    if not samples:
        raise ValueError("a step needs at least one sample")
    surrogate = config.surrogate
    weights = token_weights([sum(s.mask) for s in samples], surrogate.aggregation, surrogate.horizon)
    total = sum(sum(sample.mask) for sample in samples)
    sums: defaultdict[str, float] = defaultdict(float)
    largest = 0.0
    optimiser.zero_grad()
    rows = list(pack([s.token_ids for s in samples], [s.mask for s in samples], config.token_budget))
    for row, counts in ranks.share(rows):
        row = row.to(ranks.device)
        logprobs, entropy = _score(model, row, config)
        behaviour, advantages, row_weights = _columns(row, samples, weights)
        anchors = None if proximal is None else [value for index in row.members for value in proximal[index]]
        loss, metrics = surrogate_loss(
            logprobs,
            behaviour,
            advantages,
            surrogate,
            weights=row_weights,
            reference_logprobs=_reference_logprobs(model, reference, row, config),
            entropies=entropy,
            proximal_logprobs=None if anchors is None else torch.tensor(anchors, device=ranks.device),
        )
        # FSDP averages gradients over the processes; the factor turns this into their sum.
        (loss * (ranks.size if counts else 0)).backward()  # type: ignore[no-untyped-call]
        metrics["entropy"] = entropy.detach().mean().item()
        metrics["logprob_gap"] = (logprobs.detach() - behaviour).abs().mean().item()
        largest = max(largest, metrics.pop("ratio_max"))
        share = len(row.targets) / total if counts else 0.0
        for name, value in metrics.items():
            sums[name] += share * value
        sums["loss"] += loss.item() if counts else 0.0
    metrics = {**ranks.sum(sums), "ratio_max": ranks.largest(largest)}
    norm = ranks.clip_gradients(model.parameters(), config.clip_norm)
    healthy = math.isfinite(metrics["loss"]) and math.isfinite(norm)
    if healthy:
        optimiser.step()
    return StepResult(not healthy, {**metrics, "gradient_norm": norm}, step_flops(model, rows))


@torch.no_grad()
def proximal_logprobs(
    model: Any, samples: Sequence[TrainingSample], config: GrpoConfig, ranks: Ranks = ALONE
) -> list[list[float]]:
    """Log-probabilities of each sample's policy tokens under the current weights.

    Args:
        model, ranks: as for `grpo_step`.
    """
    counts = [sum(sample.mask) for sample in samples]
    starts = list(accumulate(counts, initial=0))
    values = torch.zeros(starts[-1], dtype=torch.float64)
    rows = list(pack([s.token_ids for s in samples], [s.mask for s in samples], config.token_budget))
    for row, counted in ranks.share(rows):
        logprobs = _score(model, row.to(ranks.device), config)[0].cpu()
        places = [place for index in row.members for place in range(starts[index], starts[index + 1])]
        if counted:
            values[places] = logprobs.double()
    return [part.tolist() for part in torch.split(ranks.total(values), counts)]


def _score(model: Any, row: Row, config: GrpoConfig) -> tuple[Tensor, Tensor]:
    scores: tuple[Tensor, Tensor] = likelihood_of(model)(
        row,
        precision=config.precision,
        entropy_gradient=config.surrogate.entropy_coefficient != 0,
        temperature=config.temperature,
        truncation=config.truncation,
        compiled=config.compile,
    )
    return scores


def _reference_logprobs(model: Any, reference: Any | None, row: Row, config: GrpoConfig) -> Tensor | None:
    """Log-probabilities under `reference` or `model` without its adapter; None without a KL penalty."""
    if not config.surrogate.kl_coefficient:
        return None
    with torch.no_grad():
        if reference is not None:
            return _score(reference, row, config)[0]
        if has_adapter(model):
            with without_adapter(model):
                return _score(model, row, config)[0]
    return None


def _columns(row: Row, samples: Sequence[TrainingSample], weights: Sequence[float]) -> Sequence[Tensor]:
    """Behaviour log-probability, advantage and weight of a row's policy tokens, [M] each."""
    table = [
        (samples[index].logprobs[position], samples[index].advantages[position], weights[index])
        for index in row.members
        for position, masked in enumerate(samples[index].mask)
        if masked
    ]
    return torch.tensor(table, dtype=torch.float32, device=row.targets.device).unbind(1)

"""The record of an optimiser step: what the journal, metrics, guards and pages read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of reinforcement learning. A field is None where the step has nothing to say of it.

    Shares are fractions of the step's questions; `_s` are seconds.

    Attributes:
        no_spread: share whose groups taught nothing, since all their returns are equal.
        not_finite: share whose loss or gradient was not finite.
        skipped: no optimiser step was made.
        staleness, staleness_max: versions between the oldest turn of a group and the weights, mean and most.
        learning_rate: of this step.
        advantage_std: see `kbqa.runs.statistics.advantage_spread`.
        loss, gradient_norm, entropy, kl, clip_fraction, clip_low_fraction, clip_high_fraction,
            capped_fraction, ratio_mean, ratio_max, logprob_gap: of the update; see
            `kbqa.training.grpo.StepResult`.
        mfu: share of the GPUs' peak that the update used; see `kbqa.training.throughput`.
        sampled_tokens: generated in the run so far, including pruned branches.
        version: full id of the newest policy version.
        groups: number of groups of the run so far, by outcome.
        resent, renewed, duplicates: see `kbqa.runs.rollouts.Rollouts.counters`.
        queued_s, rolled_out_s, engine_s, graph_s, aged_s: of a request, mean; in the queue, in the worker,
            of that waiting for the engine and for the graph, and from its reply until this step.
        waited_s, trained_s, published_s, checkpointed_s, evaluated_s: of the process, since the last record.
        stage: of the curriculum, mean over the requests.
        curves: the papers' curves and the reward's components, see `kbqa.curves`; and how they are
            distributed, see `kbqa.runs.statistics`.
    """

    no_spread: float
    not_finite: float
    skipped: bool
    staleness: float
    sampled_tokens: int
    version: str
    groups: Mapping[str, int]
    resent: int = 0
    renewed: int = 0
    duplicates: int = 0
    queued_s: float = 0.0
    rolled_out_s: float = 0.0
    engine_s: float = 0.0
    graph_s: float = 0.0
    aged_s: float = 0.0
    staleness_max: float | None = None
    learning_rate: float | None = None
    advantage_std: float | None = None
    loss: float | None = None
    gradient_norm: float | None = None
    entropy: float | None = None
    kl: float | None = None
    clip_fraction: float | None = None
    clip_low_fraction: float | None = None
    clip_high_fraction: float | None = None
    capped_fraction: float | None = None
    ratio_mean: float | None = None
    ratio_max: float | None = None
    logprob_gap: float | None = None
    mfu: float | None = None
    waited_s: float | None = None
    trained_s: float | None = None
    published_s: float | None = None
    checkpointed_s: float | None = None
    evaluated_s: float | None = None
    stage: float | None = None
    curves: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As a line of `metrics.jsonl` has it: curves beside the fields, nothing that is None."""
        own = {name: getattr(self, name) for name in step_fields()}
        return {**self.curves, **{name: value for name, value in own.items() if value is not None}}


def step_fields() -> list[str]:
    """The names of a record's fields, without those of its curves."""
    return [one.name for one in fields(StepRecord) if one.name != "curves"]

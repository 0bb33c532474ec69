"""The update from one batch of rollouts: optimiser steps on mini-batches, over one or more epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

import torch

from kbqa.training.grpo import GrpoConfig, grpo_step, proximal_logprobs
from kbqa.training.ranks import ALONE, Ranks
from kbqa.trajectory import TrainingSample

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The result of an update.

    Attributes:
        trained: for each question, whether an optimiser step learned from it.
        metrics: means over the optimiser steps that were not skipped, and the largest ratio_max; see
            `StepResult`.
        flops: products of all optimiser steps; None where they are not counted, and without any step.
    """

    trained: tuple[bool, ...]
    metrics: dict[str, float]
    flops: float | None = None


def grpo_update(
    model: Any,
    optimiser: torch.optim.Optimizer,
    questions: Sequence[Sequence[TrainingSample]],
    config: GrpoConfig,
    reference: Any | None = None,
    ranks: Ranks = ALONE,
) -> UpdateResult:
    """Update `model` in place, by one optimiser step for each mini-batch of each epoch.

    Behaviour log-probabilities stay those of the rollout, so from the second optimiser step on, ratios
    differ from 1 and clipping takes effect. With an importance cap, ratios are relative to the weights with
    which the update begins, under which all samples are scored first.

    Args:
        questions: the samples of each question; empty where its groups have no spread.
        model, reference: as for `grpo_step`.
    """
    trained = [False] * len(questions)
    metrics: list[dict[str, float]] = []
    flops: list[float] = []
    batches = list(mini_batches([len(samples) for samples in questions], config))
    proximal = None
    if config.surrogate.importance_cap is not None and len(batches) * config.epochs > 1:
        places = [place for batch in batches for place in batch]
        samples = [questions[question][sample] for question, sample in places]
        proximal = dict(zip(places, proximal_logprobs(model, samples, config, ranks), strict=True))
    for _ in range(config.epochs):
        for batch in batches:
            samples = [questions[question][sample] for question, sample in batch]
            anchors = None if proximal is None else [proximal[place] for place in batch]
            result = grpo_step(model, optimiser, samples, config, reference, ranks, anchors)
            if result.flops is not None:
                flops.append(result.flops)
            if result.skipped:
                continue
            metrics.append(result.metrics)
            for question, _ in batch:
                trained[question] = True
    means = {name: fmean(values[name] for values in metrics) for name in (metrics[0] if metrics else ())}
    if metrics:
        means["ratio_max"] = max(values["ratio_max"] for values in metrics)
    return UpdateResult(tuple(trained), means, sum(flops) if flops else None)


def mini_batches(sizes: Sequence[int], config: GrpoConfig) -> Iterator[list[tuple[int, int]]]:
    """Non-empty mini-batches of nearly equal size, in order, as positions (question, sample).

    Mini-batches of questions count questions without samples, too, so that their number does not
    depend on how many groups were dropped.

    Args:
        sizes: samples of each question.
    """
    if config.mini_batch_samples is not None:
        flat = list(_positions(range(len(sizes)), sizes))
        yield from map(list, _evenly(flat, config.mini_batch_samples))
        return
    for part in _evenly(range(len(sizes)), config.mini_batch_questions or len(sizes)):
        batch = list(_positions(part, sizes))
        if batch:
            yield batch


def _positions(questions: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((question, sample) for question in questions for sample in range(sizes[question]))


def _evenly(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """The fewest parts with at most `most` items each; their sizes differ by at most one."""
    parts = math.ceil(len(items) / most) if items else 0
    for part in range(parts):
        yield items[part * len(items) // parts : (part + 1) * len(items) // parts]

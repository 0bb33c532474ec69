"""Metrics of the latest run, from its newest records, read when Prometheus scrapes them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

from kbqa.curves import curve_names
from kbqa.runs.directory import Runs, State
from kbqa.runs.guards import ALARMS
from kbqa.runs.ledger import GroupOutcome
from kbqa.telemetry import Metrics

_PHASES = ("warm_up", "cold_start", "rl")
_SPLITS = ("validation", "test")
STEP_GAUGES = {
    "kbqa_trainer_step": "step",
    "kbqa_trainer_reward": "reward",
    "kbqa_trainer_turns": "turns",
    "kbqa_trainer_invalid_actions": "invalid_actions",
}
RL_GAUGES = {
    "kbqa_trainer_entropy": "entropy",
    "kbqa_trainer_no_spread": "no_spread",
    "kbqa_trainer_logprob_gap": "logprob_gap",
    "kbqa_trainer_kl": "kl",
    "kbqa_trainer_clip_fraction": "clip_fraction",
    "kbqa_trainer_gradient_norm": "gradient_norm",
    "kbqa_trainer_not_finite": "not_finite",
    "kbqa_trainer_staleness": "staleness",
    "kbqa_trainer_queued_seconds": "queued_s",
    "kbqa_trainer_group_age_seconds": "aged_s",
}
PARTS = ("waited", "trained", "published", "checkpointed", "evaluated")
_FRESH_S = 1.0  # time for which records are reused, so that a scrape reads the files only once
_FALL_STEPS = 20  # steps that are averaged, because single steps fluctuate


def expose_latest_run(metrics: Metrics, runs: Runs) -> None:
    """Export the newest run in the trainer's gauges; unknown values are NaN."""
    records = _Records(runs)
    for gauge, key in STEP_GAUGES.items():
        for phase in _PHASES:
            metrics.gauge(gauge).labels(phase).set_function(records.reader(key, kind="step", phase=phase))
    for phase in _PHASES:
        for split in _SPLITS:
            reader = records.reader("f1", kind="evaluation", phase=phase, split=split)
            metrics.gauge("kbqa_trainer_f1").labels(phase, split).set_function(reader)
    for curve in curve_names():
        reader = records.reader(curve, kind="step", phase="rl")
        metrics.gauge("kbqa_trainer_curve").labels(curve).set_function(reader)
    for gauge, key in RL_GAUGES.items():
        metrics.gauge(gauge).set_function(records.reader(key, kind="step", phase="rl"))
    metrics.gauge("kbqa_trainer_reward_fall").set_function(records.reward_fall)
    metrics.gauge("kbqa_trainer_policy_version").set_function(records.newest_version)
    for part in PARTS:
        reader = records.reader(f"{part}_s", kind="step", phase="rl")
        metrics.gauge("kbqa_trainer_step_seconds").labels(part).set_function(reader)
    for alarm in ALARMS:
        metrics.gauge("kbqa_trainer_alarm").labels(alarm).set_function(partial(_raised, runs, alarm))
    for outcome in GroupOutcome:
        reader = records.reader("groups", outcome.value, kind="step", phase="rl")
        metrics.gauge("kbqa_trainer_groups").labels(outcome.value).set_function(reader)


def _raised(runs: Runs, alarm: str) -> float:
    """1 while the newest run is active and its alarm is raised."""
    for run in runs.all()[-1:]:
        if run.read().state is State.RUNNING:
            return float(alarm in run.progress().get("results", {}).get("alarms", {}))
    return 0.0


class _Records:
    """The metrics records of the newest run, newest first, cached for a moment."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._records: list[dict[str, Any]] = []
        self._until = 0.0

    def reader(self, *path: str, **where: str) -> Callable[[], float]:
        """A function that returns the value at `path` in the newest record that matches `where`, or NaN."""

        def read() -> float:
            for record in self._fresh():
                if all(record.get(field) == value for field, value in where.items()):
                    return _number(record, path)
            return math.nan

        return read

    def newest_version(self) -> float:
        """Number of the version in the newest record; NaN before the first."""
        versions = (record["version"] for record in self._fresh() if "version" in record)
        newest = next(versions, None)
        return math.nan if newest is None else float(newest[1:].partition("-")[0])

    def reward_fall(self) -> float:
        """How far the latest steps' mean reward is below the run's best; NaN if there are too few steps.

        Returns:
            The fall as a share of the best: 0 is none, 1 all of it; it can exceed 1 if rewards are negative.
        """
        rewards = [
            record["reward"]
            for record in self._fresh()
            if (record["kind"], record["phase"]) == ("step", "rl") and "reward" in record
        ]
        sums = list(accumulate(rewards, initial=0.0))
        means = [(late - early) / _FALL_STEPS for early, late in zip(sums, sums[_FALL_STEPS:], strict=False)]
        best = max(means, default=0.0)
        return 1 - means[0] / best if best > 0 else math.nan

    def _fresh(self) -> list[dict[str, Any]]:
        if time.monotonic() > self._until:
            runs = self._runs.all()
            self._records = runs[-1].records()[::-1] if runs else []
            self._until = time.monotonic() + _FRESH_S
        return self._records


def _number(record: dict[str, Any], path: tuple[str, ...]) -> float:
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan

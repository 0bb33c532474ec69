"""Metrics of the latest run, from its newest records, read when Prometheus scrapes them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kbqa.curves import curve_names
from kbqa.runs.directory import Runs, State
from kbqa.runs.guards import ALARMS
from kbqa.runs.ledger import GroupOutcome
from kbqa.runs.record_file import FollowedRecords
from kbqa.telemetry.metrics import Metrics

_PHASES = ("warm_up", "cold_start", "rl")
_SPLITS = ("validation", "test")
_HEAD = frozenset({"seq", "time", "step", "of", "seconds", "questions"})  # of a record, beside its means
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
    "kbqa_trainer_staleness_max": "staleness_max",
    "kbqa_trainer_stage": "stage",
    "kbqa_trainer_sampled_tokens": "sampled_tokens",
    "kbqa_trainer_advantage_spread": "advantage_std",
    "kbqa_trainer_learning_rate": "learning_rate",
    "kbqa_trainer_loss": "loss",
    "kbqa_trainer_importance_ratio": "ratio_mean",
    "kbqa_trainer_importance_ratio_max": "ratio_max",
    "kbqa_trainer_capped_fraction": "capped_fraction",
    "kbqa_trainer_mfu": "mfu",
    "kbqa_trainer_clip_low_fraction": "clip_low_fraction",
    "kbqa_trainer_clip_high_fraction": "clip_high_fraction",
    "kbqa_trainer_queued_seconds": "queued_s",
    "kbqa_trainer_group_age_seconds": "aged_s",
}
# Fields of a step that hold numbers by name: of a statistic, a component, a turn, an action.
DISTRIBUTIONS = {
    "kbqa_trainer_reward_spread": "reward_spread",
    "kbqa_trainer_reward_component": "reward_components",
    "kbqa_trainer_turn_reward": "turn_rewards",
    "kbqa_trainer_episode_tokens": "episode_tokens",
    "kbqa_trainer_action_success": "action_success",
}
PARTS = ("waited", "trained", "published", "checkpointed", "evaluated")
_FRESH_S = 1.0  # time for which records are reused, so that a scrape looks at the files only once
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
    for gauge, key in DISTRIBUTIONS.items():
        metrics.observed(gauge, partial(records.numbers, key))
    metrics.gauge("kbqa_trainer_truncated").set_function(records.reader("truncated", kind="step", phase="rl"))
    metrics.gauge("kbqa_trainer_steps_planned").set_function(records.reader("of", kind="step", phase="rl"))
    metrics.observed("kbqa_trainer_evaluation", records.evaluations)
    metrics.observed("kbqa_trainer_f1_by_hops", records.f1_by_hops)
    metrics.observed("kbqa_trainer_run_info", partial(_run_info, runs))
    metrics.gauge("kbqa_trainer_checkpoint_step").set_function(partial(_newest_checkpoint, runs))
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


def _run_info(runs: Runs) -> dict[tuple[str, ...], float]:
    """The newest run, described by labels."""
    for run in runs.all()[-1:]:
        record = run.read()
        recipe = record.recipe
        return {(run.id, str(recipe["name"]), record.dataset, str(recipe.get("base_model") or "")): 1.0}
    return {}


def _newest_checkpoint(runs: Runs) -> float:
    """Step of the newest run's newest checkpoint; NaN before the first."""
    for run in runs.all()[-1:]:
        # Read here, because the module that writes them imports torch.
        steps = (path.name.removeprefix("step-") for path in run.checkpoints_path.glob("step-*"))
        return float(max((int(step) for step in steps if step.isdecimal()), default=math.nan))
    return math.nan


class _Records:
    """What the metrics need of the newest run's records; each record is read once."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._lock = threading.Lock()
        self._followed: tuple[str, FollowedRecords] | None = None  # with the run's id
        self._until = 0.0
        self._forget()

    def reader(self, *path: str, **where: str) -> Callable[[], float]:
        """A function that returns the value at `path` in the newest record of a series, or NaN."""

        def read() -> float:
            return _number(self._latest(**where), path)

        return read

    def numbers(self, key: str) -> dict[tuple[str, ...], float]:
        """The numbers that the newest step holds under `key`, by name."""
        step = self._latest(kind="step", phase="rl")
        return {(name,): value for name, value in step.get(key, {}).items()}

    def evaluations(self) -> dict[tuple[str, ...], float]:
        """Means of the newest evaluation of each split, by split and name."""
        return {
            (split, name): float(value)
            for split in _SPLITS
            for name, value in self._latest(kind="evaluation", phase="rl", split=split).items()
            if name not in _HEAD and isinstance(value, int | float)
        }

    def f1_by_hops(self) -> dict[tuple[str, ...], float]:
        """Likewise, mean F1 by split and length of the gold path."""
        return {
            (split, hops): value
            for split in _SPLITS
            for hops, value in self._latest(kind="evaluation", phase="rl", split=split)
            .get("f1_by_hops", {})
            .items()
        }

    def _latest(self, **where: str) -> dict[str, Any]:
        """The newest record of a series; empty if there is none."""
        self._refresh()
        return self._newest.get(_place(where), {})

    def newest_version(self) -> float:
        """Number of the version in the newest record; NaN before the first."""
        self._refresh()
        return math.nan if self._version is None else float(self._version[1:].partition("-")[0])

    def reward_fall(self) -> float:
        """How far the latest steps' mean reward is below the run's best; NaN if there are too few steps.

        Returns:
            The fall as a share of the best: 0 is none, 1 all of it; it can exceed 1 if rewards are negative.
        """
        self._refresh()
        return 1 - self._mean / self._best_mean if self._best_mean > 0 else math.nan

    def _forget(self) -> None:
        self._newest: dict[tuple[str | None, ...], dict[str, Any]] = {}
        self._version: str | None = None
        self._rewards: deque[float] = deque(
            maxlen=_FALL_STEPS
        )  # of the latest steps of reinforcement learning
        self._mean, self._best_mean = 0.0, 0.0

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() <= self._until:
                return
            self._until = time.monotonic() + _FRESH_S
            if not (runs := self._runs.all()):
                return
            if self._followed is None or self._followed[0] != runs[-1].id:
                self._followed = runs[-1].id, FollowedRecords(runs[-1].metrics_path)
                self._forget()
            rewritten, records = self._followed[1].new()
            if rewritten:
                self._forget()
            for record in records:
                self._take(record)

    def _take(self, record: dict[str, Any]) -> None:
        self._newest[_place(record)] = record
        self._version = record.get("version", self._version)
        if (record["kind"], record["phase"]) == ("step", "rl") and "reward" in record:
            self._rewards.append(record["reward"])
            if len(self._rewards) == _FALL_STEPS:
                self._mean = sum(self._rewards) / _FALL_STEPS
                self._best_mean = max(self._best_mean, self._mean)


def _place(record: Mapping[str, Any]) -> tuple[str | None, ...]:
    """What tells one series of records from another."""
    return record["kind"], record["phase"], record.get("split")


def _number(record: dict[str, Any], path: tuple[str, ...]) -> float:
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan

"""Metrics of the latest run, from its newest records, read when they are scraped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from kbqa.telemetry import Metrics
from services.trainer.ledger import Outcome
from services.trainer.runs import Runs

_PHASES = ("warm_up", "cold_start", "rl")
_SPLITS = ("validation", "test")
_STEP_GAUGES = {
    "kbqa_trainer_step": "step",
    "kbqa_trainer_reward": "reward",
    "kbqa_trainer_turns": "turns",
    "kbqa_trainer_invalid_actions": "invalid_actions",
}
_FRESH_S = 1.0  # one scrape reads the files once


def expose_latest_run(metrics: Metrics, runs: Runs) -> None:
    """Let the gauges of the trainer show the newest run; what is not known yet is NaN."""
    records = _Records(runs)
    for gauge, key in _STEP_GAUGES.items():
        for phase in _PHASES:
            metrics.gauge(gauge).labels(phase).set_function(records.reader(key, kind="step", phase=phase))
    for phase in _PHASES:
        for split in _SPLITS:
            reader = records.reader("f1", kind="evaluation", phase=phase, split=split)
            metrics.gauge("kbqa_trainer_f1").labels(phase, split).set_function(reader)
    for outcome in Outcome:
        reader = records.reader("groups", outcome.value, kind="step", phase="rl")
        metrics.gauge("kbqa_trainer_groups").labels(outcome.value).set_function(reader)


class _Records:
    """The metrics records of the newest run, newest first, kept for a moment."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._records: list[dict[str, Any]] = []
        self._until = 0.0

    def reader(self, *path: str, **where: str) -> Callable[[], float]:
        """Reads the value at `path` of the newest record whose fields are as in `where`."""

        def read() -> float:
            for record in self._fresh():
                if all(record.get(field) == value for field, value in where.items()):
                    return _number(record, path)
            return math.nan

        return read

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

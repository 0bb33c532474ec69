"""Selects the best weights of a run by the metric that its recipe names."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from kbqa.errors import RunError
from kbqa.recipes.learning import BestBySection


@dataclass(frozen=True, slots=True)
class Best:
    """Attributes:
    step: of the checkpoint that holds the weights.
    version: full id of the policy version that has them.
    """

    step: int
    version: str
    value: float


class Selection:
    """Remembers the best weights, and how many candidates since then were not better.

    Args:
        section: None never chooses.

    Attributes:
        best: of those offered; of several, the latest.
        since_best: how many were offered since the first that was as good.
    """

    def __init__(self, section: BestBySection | None) -> None:
        self._section = section
        self._window: list[float] = []
        self.best: Best | None = None
        self.since_best = 0

    def after_step(self, record: Mapping[str, Any]) -> None:
        """Take note of a step's record, which measures the weights before the step."""
        if self._section is not None and self._section.split == "train":
            self._window.append(self._read(record))

    def at_checkpoint(self, step: int, version: str) -> None:
        """Before a checkpoint is written: offer its weights, if the steps before it have measured them."""
        if self._window:
            value, self._window = fmean(self._window), []
            self._offer(Best(step, version, value))

    def after_evaluation(self, step: int, version: str, record: Mapping[str, Any]) -> bool:
        """A version was evaluated on the validation questions; returns whether it is the best so far."""
        if self._section is None or self._section.split == "train":
            return False
        return self._offer(Best(step, version, self._read(record)))

    def to_json(self) -> dict[str, Any]:
        return {"best": self.best and asdict(self.best), "since_best": self.since_best}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Go on as `to_json` was."""
        self.best = values["best"] and Best(**values["best"])
        self.since_best = values["since_best"]

    def _offer(self, candidate: Best) -> bool:
        assert self._section is not None
        better = operator.gt if self._section.direction == "max" else operator.lt
        if self.best is None or better(candidate.value, self.best.value):
            self.best, self.since_best = candidate, 0
            return True
        self.since_best += 1
        # Of two that look alike, the one that was trained for longer.
        if candidate.value == self.best.value:
            self.best = candidate
            return True
        return False

    def _read(self, record: Mapping[str, Any]) -> float:
        assert self._section is not None
        value = record.get(self._section.metric)
        if not isinstance(value, int | float):
            known = ", ".join(sorted(name for name, value in record.items() if isinstance(value, float)))
            raise RunError(
                f"schedule.best_by.metric: the records of {self._section.split} have no number "
                f"{self._section.metric} (they have: {known})"
            )
        return float(value)

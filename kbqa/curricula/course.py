"""A run's course through the stages of its curriculum: what is asked, and when that changes.

    stage 1   F_0.5      until the validation F1 has stopped rising      (KnowCoder-A1, 4.3.2)
    stage 2   F_1
or
    stage 1   easy questions, one of each pattern       until step 56    (ISP-KGR, 5.1 and E.1)
    stage 2   medium ones
    stage 3   hard ones

A course is a state machine over numbers that a trainer records anyway. It knows at which position
each stage began, so that a question that was asked before a switch keeps its stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, Protocol

from kbqa.errors import RunError
from kbqa.trajectory import Question


class Questions(Protocol):
    """A question for every position from 0; see `kbqa.curricula.deck`."""

    def __getitem__(self, position: int, /) -> Question: ...


@dataclass(frozen=True, slots=True)
class Until:
    """When a stage ends: when the first of these conditions is met.

    Attributes:
        steps: optimiser steps of the stage.
        at_least: value that `metric` has to reach.
        patience: number of looks in a row at which `metric` was not above its best by more than
            `min_gain`.
        metric, split: the value at each look: a field of an evaluation's record (`validation`), or the
            mean of a field of the last `window` steps' records (`train`), once the stage has that many.
    """

    steps: int | None = None
    at_least: float | None = None
    patience: int | None = None
    min_gain: float = 0.0
    metric: str = "f1"
    split: Literal["train", "validation"] = "validation"
    window: int = 10


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a course.

    Attributes:
        questions: the questions by position, counted from the beginning of the stage.
        until: None for the last stage.
    """

    name: str
    questions: Questions
    until: Until | None = None


@dataclass(slots=True)
class _Watch:
    """What the condition of the current stage has seen."""

    steps: int = 0
    best: float | None = None
    since_best: int = 0
    window: list[float] = field(default_factory=list)


class Course:
    """The questions of all stages, by position.

    Attributes:
        stage: index of the current stage.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        if not stages:
            raise ValueError("a course has at least one stage")
        self._stages = tuple(stages)
        self._starts = [0]  # position at which each stage so far began
        self._watch = _Watch()

    @property
    def stage(self) -> int:
        return len(self._starts) - 1

    @property
    def name(self) -> str:
        """Name of the current stage."""
        return self._stages[self.stage].name

    def stage_at(self, position: int) -> int:
        """The stage to which a position belongs."""
        return max(index for index, start in enumerate(self._starts) if start <= position)

    def __getitem__(self, position: int) -> Question:
        stage = self.stage_at(position)
        return self._stages[stage].questions[position - self._starts[stage]]

    def after_step(self, record: Mapping[str, Any], position: int) -> str | None:
        """Take a step's record.

        Args:
            position: the first position that was not asked for yet, at which the next stage would begin.

        Returns:
            Why the next stage has begun; None if it has not.
        """
        until = self._until
        if until is None:
            return None
        self._watch.steps += 1
        reason = None
        if until.split == "train" and (until.at_least is not None or until.patience is not None):
            self._watch.window = [*self._watch.window, self._read(until, record)][-until.window :]
            if len(self._watch.window) == until.window:
                reason = self._look(until, fmean(self._watch.window))
        if until.steps is not None and self._watch.steps >= until.steps:
            reason = f"{self._watch.steps} steps were made"
        return self._advance(reason, position)

    def after_evaluation(self, record: Mapping[str, Any], position: int) -> str | None:
        """Take the record of an evaluation on the validation questions; as `after_step`."""
        until = self._until
        if until is None or until.split == "train" or (until.at_least, until.patience) == (None, None):
            return None
        return self._advance(self._look(until, self._read(until, record)), position)

    def to_json(self) -> dict[str, Any]:
        watch = self._watch
        return {
            "starts": self._starts,
            "steps": watch.steps,
            "best": watch.best,
            "since_best": watch.since_best,
            "window": watch.window,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self._starts = list(values["starts"])
        self._watch = _Watch(values["steps"], values["best"], values["since_best"], list(values["window"]))

    @property
    def _until(self) -> Until | None:
        return self._stages[self.stage].until if self.stage + 1 < len(self._stages) else None

    def _look(self, until: Until, value: float) -> str | None:
        """Whether a measured value ends the stage, and why."""
        watch = self._watch
        if until.at_least is not None and value >= until.at_least:
            return f"{until.metric} has reached {value:.3f}"
        if watch.best is None or value > watch.best + until.min_gain:
            watch.best, watch.since_best = value, 0
            return None
        watch.since_best += 1
        if until.patience is not None and watch.since_best >= until.patience:
            return f"{until.metric} has not risen above {watch.best:.3f} in {watch.since_best} looks"
        return None

    def _advance(self, reason: str | None, position: int) -> str | None:
        if reason is not None:
            self._starts.append(position)
            self._watch = _Watch()
        return reason

    def _read(self, until: Until, record: Mapping[str, Any]) -> float:
        value = record.get(until.metric)
        if not isinstance(value, int | float):
            known = ", ".join(sorted(name for name, value in record.items() if isinstance(value, float)))
            raise RunError(
                f"curriculum: stage {self.name} waits for {until.metric}, and the records of "
                f"{until.split} do not contain this metric (they contain: {known})"
            )
        return float(value)

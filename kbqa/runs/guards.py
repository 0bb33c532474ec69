"""Guards: bounds on training metrics, for runs that nobody watches.

An alarm is raised when a value of the steps' records is out of bounds in several steps in a
row, and cleared by the first step that is within them. A step without the value, such as one
without spread, is ignored.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from kbqa.errors import RunError
from kbqa.recipes.learning import AlarmName, GuardsSection
from kbqa.runs.records import StepRecord

ALARMS: tuple[AlarmName, ...] = get_args(AlarmName)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A value out of its bound.

    Attributes:
        name: also that of the field in a step's record.
        since: the step in which it was raised.
    """

    name: AlarmName
    value: float
    bound: float
    since: int

    def __str__(self) -> str:
        side = "below" if self.name == "entropy" else "above"
        return f"{self.name} {self.value:.4g} is {side} {self.bound:.4g}"


class Guards:
    """Watches one step after another.

    Attributes:
        raised: the alarms that are on, by name.
    """

    def __init__(self, section: GuardsSection) -> None:
        self._section = section
        self.raised: dict[str, Alarm] = {}
        self._strikes: dict[str, int] = {}
        self._not_finite = 0

    def watch(self, step: int, record: StepRecord) -> list[Alarm]:
        """Look at the record of a step; returns the alarms that it raised."""
        new = []
        for name in ALARMS:
            bound, value = self._section.bound(name), getattr(record, name)
            if bound is None or value is None:
                continue
            broken: Callable[[float, float], bool] = operator.lt if name == "entropy" else operator.gt
            if not broken(value, bound):
                self._strikes.pop(name, None)
                self.raised.pop(name, None)
                continue
            self._strikes[name] = self._strikes.get(name, 0) + 1
            if self._strikes[name] == self._section.steps:
                self.raised[name] = Alarm(name, value, bound, step)
                new.append(self.raised[name])
        return new

    def count_not_finite(self, step: int, trained: bool) -> None:
        """Count the steps in a row that were skipped because their loss or gradient was not finite.

        Raises:
            RunError: too many steps in a row were skipped.
        """
        self._not_finite = 0 if trained else self._not_finite + 1
        if self._not_finite >= self._section.max_not_finite:
            raise RunError(
                f"loss or gradient was not finite in {self._not_finite} steps in a row, up to step {step}: "
                "the run no longer learns. Look at entropy, gradient_norm and logprob_gap before that "
                "step, lower optimisation.learning_rate or optimisation.clip_norm, and start a new run"
            )

    def stops(self) -> str | None:
        """The reason why reinforcement learning must end; None if it continues."""
        alarm = next((alarm for name, alarm in self.raised.items() if name in self._section.stop_on), None)
        return None if alarm is None else f"alarm since step {alarm.since}: {alarm}"

    def to_json(self) -> dict[str, Any]:
        return {
            "raised": [asdict(alarm) for alarm in self.raised.values()],
            "strikes": self._strikes,
            "not_finite": self._not_finite,
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Go on as `to_json` was."""
        self.raised = {alarm["name"]: Alarm(**alarm) for alarm in values["raised"]}
        self._strikes, self._not_finite = dict(values["strikes"]), values["not_finite"]

"""The average of evaluations of several data sets, weighted by their numbers of questions.

KG-R1 reports such averages of F1 and Hit@1 over five data sets (section 4.2, AVG.).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kbqa.errors import ConfigurationError
from kbqa.evaluation.measures import METRICS


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of an evaluation, by the names of `METRICS`."""

    dataset: str
    questions: int
    metrics: dict[str, float]


def read_measured(path: Path) -> Measured:
    """Read the figures of an evaluation from its JSON.

    Raises:
        ConfigurationError: the file cannot be read, or is not the JSON of an evaluation.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        metrics = {name: float(value) for name, value in values["metrics"].items() if name in METRICS}
        return Measured(str(values["dataset"]), int(values["questions"]), metrics)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{path} was not written by kbqa eval --json ({error!r})") from error


def average(evaluations: Sequence[Measured]) -> Measured:
    """The metrics that all evaluations have, weighted by their numbers of questions.

    >>> average([Measured("a", 300, {"f1": 0.8}), Measured("b", 100, {"f1": 0.4})]).metrics
    {'f1': 0.7}
    """
    total = sum(one.questions for one in evaluations)
    shared = [name for name in METRICS if all(name in one.metrics for one in evaluations)]
    metrics = {
        name: round(sum(one.metrics[name] * one.questions for one in evaluations) / total, 12)
        for name in shared
    }
    return Measured("average", total, metrics)

"""Compares two evaluations on the same questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.errors import ConfigurationError
from kbqa.evaluation.evaluation import Record
from kbqa.evaluation.measures import METRICS
from kbqa.evaluation.significance import Interval, McNemar, bootstrap, mcnemar

Measured = Mapping[str, Mapping[str, float | None]]
"""Question id → metric → value; None if the metric has no value."""


class Pair(NamedTuple):
    """A question's measure in both evaluations, and the question's group."""

    ours: float
    theirs: float
    group: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two evaluations in one metric, over their common questions.

    Attributes:
        ours, theirs: means.
        difference: ours - theirs.
        interval: 95 % interval of the difference, by bootstrap over groups; see `Record.group`.
        test: McNemar's, for a binary metric. It treats questions as independent, even those of
            one group.
    """

    ours: float
    theirs: float
    difference: float
    interval: Interval
    test: McNemar | None


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A comparison with an earlier evaluation.

    Attributes:
        name: of the earlier evaluation.
        questions: number of common questions.
        groups: number of groups among these; see `Record.group`.
        differences: by metric.
    """

    name: str
    questions: int
    groups: int
    differences: dict[str, Difference]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_earlier(path: Path) -> tuple[str, Measured]:
    """Read the name and the measures of an evaluation from its JSON.

    Raises:
        ConfigurationError: the file cannot be read, or is not the JSON of an evaluation.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        records = {str(record["id"]): dict(record["measures"]) for record in values["records"]}
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} was not written by kbqa eval --json ({error!r})") from error
    return str(values.get("policy") or path.stem), records


def compare(records: Sequence[Record], name: str, earlier: Measured) -> PairedComparison:
    """Compare with an earlier evaluation.

    Raises:
        ConfigurationError: the evaluations have no question in common.
    """
    common = [record for record in records if record.question.id in earlier]
    if not common:
        raise ConfigurationError(
            f"{name}: it has no question in common with this evaluation: compare on the same data set and "
            "split"
        )
    differences = {}
    for metric in METRICS:
        pairs = [
            Pair(measured.value / measured.weight, theirs, record.group)
            for record in common
            if (measured := record.measures[metric]).weight
            and isinstance(theirs := earlier[record.question.id].get(metric), int | float)
        ]
        if pairs:
            differences[metric] = difference(pairs, is_binary=METRICS[metric].is_binary)
    return PairedComparison(name, len(common), len({record.group for record in common}), differences)


def difference(pairs: Sequence[Pair], *, is_binary: bool) -> Difference:
    """The difference in one metric, over at least one pair."""
    interval = bootstrap([pair.ours - pair.theirs for pair in pairs], groups=[pair.group for pair in pairs])
    assert interval is not None, "there are pairs"
    ours = sum(pair.ours for pair in pairs) / len(pairs)
    theirs = sum(pair.theirs for pair in pairs) / len(pairs)
    test = None
    if is_binary:
        won, lost = sum(p.ours > p.theirs for p in pairs), sum(p.ours < p.theirs for p in pairs)
        test = mcnemar(won, lost)
    return Difference(ours, theirs, ours - theirs, interval, test)

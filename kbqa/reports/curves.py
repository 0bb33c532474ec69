"""The curves of several runs: each over steps and over seconds, and their mean with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from kbqa.evaluation.significance import t_quantile
from kbqa.reports.views import ChartView, Point, SeriesView

Axis = Literal["step", "seconds"]
Records = Sequence[Mapping[str, Any]]
"""Records of `metrics.jsonl`."""


class CurvedRun(Protocol):
    """What is drawn of a run: its records, and whether it is done."""

    @property
    def records(self) -> Records: ...

    @property
    def is_done(self) -> bool: ...


_NO_BAND: tuple[list[Point], list[Point]] = ([], [])
_MOST = 200  # points of a curve; more are averaged
_GRID = 100  # seconds at which the curves of several runs are averaged
_PHASES = ("rl", "cold_start", "warm_up")  # the last phase of a run is the one that is drawn


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart.

    Attributes:
        field: of the records of steps or, with a split, of its evaluations.
    """

    title: str
    field: str
    split: str | None = None
    about: str = ""
    unit: str = ""


CHARTS = (
    Drawn("F1 on the validation questions", "f1", "validation"),
    Drawn(
        "Reward", "reward", about="mean of the training episodes; recipes with other rewards do not compare"
    ),
    Drawn("F1 on the training questions", "f1", about="of the episodes that were learned from"),
    Drawn("Entropy", "entropy", about="how undecided the policy is", unit="nats"),
    Drawn("Loss", "loss"),
)


def charts(systems: Mapping[int, Sequence[CurvedRun]]) -> list[ChartView]:
    """The charts for which there are records.

    Args:
        systems: the runs, by the index of their system.
    """
    found = []
    for chart in CHARTS:
        steps, seconds = (
            [one for system, runs in systems.items() if (one := _series(system, runs, chart, axis))]
            for axis in ("step", "seconds")
        )
        if steps:
            found.append(
                ChartView(
                    title=chart.title,
                    about=chart.about,
                    unit=chart.unit,
                    smoothed=chart.split is None,
                    steps=steps,
                    seconds=seconds,
                )
            )
    return found


def _series(
    system: int, runs: Sequence[CurvedRun], chart: Drawn, axis: Literal["step", "seconds"]
) -> SeriesView | None:
    curves = {at: curve for at, run in enumerate(runs) if (curve := curve_of(run.records, chart, axis))}
    if not curves:
        return None
    # Otherwise a mean would end where the run ends that has begun last.
    averaged = [curve for at, curve in curves.items() if runs[at].is_done] or list(curves.values())
    if len(averaged) == 1:
        points, band = list(averaged[0]), _NO_BAND
    else:
        points, band = mean_curve(averaged, axis)
    return SeriesView(
        system=system,
        points=thinned(points),
        band=[(x, low, high) for (x, low), (_, high) in zip(*map(thinned, band), strict=True)],
        members=[thinned(curve) for curve in curves.values()] if len(curves) > 1 else [],
    )


def curve_of(records: Records, chart: Drawn, axis: Axis) -> list[Point]:
    """The values of one run, in the last phase that has steps."""
    kind = "step" if chart.split is None else "evaluation"
    stepped = {record["phase"] for record in records if record["kind"] == "step"}
    phase = next((name for name in _PHASES if name in stepped), None)
    return [
        (float(record[axis]), float(record[chart.field]))
        for record in records
        if record["kind"] == kind
        and record["phase"] == phase
        and record.get("split") == chart.split
        and isinstance(record.get(chart.field), int | float)
        and math.isfinite(record[chart.field])
    ]


def mean_curve(
    curves: Sequence[Sequence[Point]], axis: Axis
) -> tuple[list[Point], tuple[list[Point], list[Point]]]:
    """The mean of at least two curves where all of them are known, and the bounds of its 95 % interval.

    Values between two points of a curve are interpolated. The interval is Student's, over the curves.
    """
    first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    if first > last:
        return [], ([], [])
    if axis == "step":
        known = sorted({x for curve in curves for x, _ in curve if first <= x <= last})
        grid = np.array(known)
    else:
        grid = np.linspace(first, last, _GRID)
    values = np.array([np.interp(grid, [x for x, _ in curve], [y for _, y in curve]) for curve in curves])
    mean = values.mean(axis=0)
    margin = t_quantile(len(curves) - 1) * values.std(axis=0, ddof=1) / math.sqrt(len(curves))
    return _points(grid, mean), (_points(grid, mean - margin), _points(grid, mean + margin))


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most 200 points: means of as many neighbours, each at the last one's place."""
    size = max(1, math.ceil(len(points) / _MOST))
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [(_short(part[-1][0]), _short(sum(y for _, y in part) / len(part))) for part in parts]


def _points(xs: np.ndarray[Any, Any], ys: np.ndarray[Any, Any]) -> list[Point]:
    return [(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]


def _short(value: float) -> float:
    return float(f"{value:.5g}")

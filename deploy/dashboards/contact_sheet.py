"""Draws every dashboard from a Prometheus that runs, a picture each, to be looked at without Grafana.

pip install 'kbqa[pictures]'
python -m deploy.dashboards.contact_sheet http://127.0.0.1:9090 FOLDER [--minutes 30]
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.ticker import FuncFormatter, NullFormatter

from deploy.dashboards.live import Board, Panel, Prometheus, Series, boards

_COLUMN, _ROW = 0.8, 0.42  # inches of a cell of Grafana's grid
_MARGIN = 0.5
_CHARTS = ("timeseries", "xychart")
_SHOWN = 8  # names in a legend
_COLOURS = {"green": "#2f8f4e", "orange": "#d97a00", "red": "#c4292e", "text": "#222222", None: "#222222"}
_SUFFIXES = {"s": " s", "reqps": " req/s", "ops": " /s"}
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prometheus", help="its URL")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--minutes", type=float, default=30.0, help="how much of the past is drawn")
    parser.add_argument("--window", default="1m", help="over which rates are taken: four scrapes at least")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    prometheus = Prometheus(given.prometheus, window=given.window)
    for board in boards():
        path = given.folder / f"{board.name}.png"
        draw(board, prometheus, given.minutes * 60, path)
        sys.stdout.write(f"{path}\n")
    return 0


def draw(board: Board, prometheus: Prometheus, seconds: float, path: Path) -> None:
    """One dashboard as a picture."""
    ends = time.time()
    columns, rows = 24, max(y + height for _, y, _, height in (panel.place for panel in board.panels))
    width, height = columns * _COLUMN, rows * _ROW + 2 * _MARGIN
    figure = pyplot.figure(figsize=(width, height), dpi=80, facecolor="#f4f5f5")
    figure.text(0.01, 1 - 0.3 / height, board.title, fontsize=16, weight="bold", va="center")
    for panel in board.panels:
        x, y, w, h = panel.place
        top = height - 1.2 * _MARGIN - y * _ROW
        if panel.kind == "row":
            figure.text(0.01, (top - 0.25) / height, panel.title, fontsize=13, weight="bold", va="center")
            continue
        series = [
            (found, found.called(target.legend))
            for target in panel.targets
            for found in prometheus.over(target.expr, seconds, ends)
        ]
        box = (x * _COLUMN + 0.1, top - h * _ROW + 0.1, w * _COLUMN - 0.2, h * _ROW - 0.2)
        _frame(figure, [side / of for side, of in zip(box, (width, height) * 2, strict=True)])
        inner = (0.95, 0.85, 1.15, 1.65) if panel.kind in _CHARTS else (0, 0, 0, 0.35)
        left, bottom, less_wide, less_high = inner
        area = (box[0] + left, box[1] + bottom, box[2] - less_wide, box[3] - less_high)
        axes = figure.add_axes([side / of for side, of in zip(area, (width, height) * 2, strict=True)])
        figure.text((box[0] + 0.1) / width, (box[1] + box[3] - 0.18) / height, panel.title, fontsize=10.5)
        if panel.kind in _CHARTS:
            told = "\n".join(textwrap.wrap(panel.description, int(box[2] * 14.5))[:2])
            figure.text(
                (box[0] + 0.1) / width, (box[1] + box[3] - 0.32) / height, told, fontsize=7.5,
                color="#666666", va="top",
            )  # fmt: skip
            axes.set_xlim(*_moments((ends - seconds, ends)))
            axes.xaxis.set_major_locator(ticks())
            axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S" if seconds < 600 else "%H:%M"))
            _lines(axes, panel, series)
        else:
            _number(axes, panel, series)
    figure.savefig(path)
    pyplot.close(figure)


def ticks() -> AutoDateLocator:
    """Where a time axis has ticks; asked for more than three at least, it finds none for four minutes."""
    return AutoDateLocator(minticks=3, maxticks=7)


def _frame(figure: Any, box: list[float]) -> None:
    axes = figure.add_axes(box)
    axes.set(xticks=[], yticks=[], facecolor="white")
    for side in axes.spines.values():
        side.set_color("#d8d9da")


def _lines(axes: Any, panel: Panel, series: list[tuple[Series, str]]) -> None:
    custom = panel.options["custom"]
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable(value, panel.unit)))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if not series:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#999999")
        axes.set_yticks([])
        return
    if custom.get("stacking", {}).get("mode") == "normal":
        _stack(axes, series)
    else:
        for found, name in series:
            axes.plot(_moments(found.times), found.values, label=name, linewidth=1.4)
    if custom.get("scaleDistribution", {}).get("type") == "log":
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high > 10 * low:  # else no power of ten may lie within
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: readable(value, panel.unit)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable(value, panel.unit)))
    else:
        lowest = min(value for found, _ in series for value in found.values)
        axes.set_ylim(bottom=min(0, lowest * 1.05))
        if (top := custom.get("axisSoftMax")) is not None:
            axes.set_ylim(top=max(top, axes.get_ylim()[1]) * 1.02)
    handles, names = axes.get_legend_handles_labels()
    if len(names) > _SHOWN:
        names[_SHOWN - 1] = f"… {len(names) - _SHOWN + 1} more"
    axes.legend(
        handles[:_SHOWN], names[:_SHOWN], loc="upper left", bbox_to_anchor=(-0.08, -0.12), ncols=3,
        fontsize=7.5, frameon=False, columnspacing=1.0, handlelength=1.0,
    )  # fmt: skip


def _stack(axes: Any, series: list[tuple[Series, str]]) -> None:
    times = sorted({at for found, _ in series for at in found.times})
    heights = []
    for found, _ in series:
        known = dict(zip(found.times, found.values, strict=True))
        heights.append([known.get(at, 0.0) for at in times])
    axes.stackplot(_moments(times), heights, labels=[name for _, name in series], alpha=0.7)


def _number(axes: Any, panel: Panel, series: list[tuple[Series, str]]) -> None:
    axes.axis("off")
    value = series[0][0].values[-1] if series else None
    text = panel.options.get("noValue", "") if value is None else readable(value, panel.unit)
    steps = panel.options["thresholds"]["steps"]
    reached = [s["color"] for s in steps if s["value"] is None or (value is not None and value >= s["value"])]
    colour = _COLOURS[reached[-1] if value is not None else None]
    axes.text(0.5, 0.5, text, fontsize=20, ha="center", va="center", color=colour)


def _moments(times: Any) -> list[datetime]:
    return [datetime.fromtimestamp(at, UTC) for at in times]


def readable(value: float, unit: str) -> str:
    """A value in a unit of Grafana's, in few characters."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} µs"
    suffix = f" {unit.removeprefix('suffix:').strip()}" if unit.startswith("suffix:") else ""
    suffix = suffix or _SUFFIXES.get(unit, "")
    for scale, letter in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {letter}{'B' if unit == 'bytes' else suffix}"
    return f"{value:.3g}{suffix}"


if __name__ == "__main__":
    sys.exit(main())

"""The dashboards as they are checked in, asked of a Prometheus that runs.

prometheus = Prometheus("http://127.0.0.1:9090")
for board in boards():
    for panel in board.panels:
        for target in panel.targets:
            prometheus.over(target.expr, seconds=1800)
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

_FILES = Path(__file__).resolve().parents[1] / "helm" / "dashboards"
_POINTS = 240
_LABEL = re.compile(r"{{\s*(\w+)\s*}}")


@dataclass(frozen=True, slots=True)
class Target:
    """A query of a panel, with Grafana's variables in it."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel, or the title of a row (kind `row`).

    Attributes:
        place: x, y, width and height on Grafana's grid of 24 columns.
    """

    kind: str
    title: str
    description: str
    unit: str
    place: tuple[int, int, int, int]
    targets: tuple[Target, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; `name` is that of its file."""

    name: str
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """What one query told of one set of labels: seconds since 1970, and values."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]

    def called(self, legend: str) -> str:
        """Its name in a legend."""
        return _LABEL.sub(lambda found: self.labels.get(found[1], ""), legend)


class Prometheus:
    """A server's HTTP API.

    Args:
        window: what `$__rate_interval` stands for; at least four scrapes.
    """

    def __init__(self, url: str, *, window: str = "1m") -> None:
        self._url, self._window = url.rstrip("/"), window

    def over(self, expr: str, seconds: float, until: float | None = None) -> list[Series]:
        """What so many seconds were like; series without any number are left out.

        Args:
            until: their end, in seconds since 1970; now unless given.

        Raises:
            ValueError: the expression is none.
        """
        end = time.time() if until is None else until
        query: dict[str, str | float] = {
            "query": expand(expr, self._window, f"{max(1, round(seconds))}s"),
            "start": end - seconds,
            "end": end,
            "step": max(1.0, seconds / _POINTS),
        }
        answer = httpx.get(f"{self._url}/api/v1/query_range", params=query, timeout=30.0, trust_env=False)
        if answer.status_code != httpx.codes.OK:
            raise ValueError(f"{expr}: {answer.text}")
        return list(_series(answer.json()["data"]["result"]))


def expand(expr: str, window: str = "1m", span: str = "1h") -> str:
    """An expression as Prometheus gets it, of all that a variable can choose."""
    filled = expr.replace("$__rate_interval", window).replace("$__range", span)
    for variable in ("namespace", "vllm", "run", "recipe"):
        filled = filled.replace(f"${variable}", ".*")
    return filled


def boards() -> list[Board]:
    """All that are checked in."""
    return [_board(path) for path in sorted(_FILES.glob("*.json"))]


def _board(path: Path) -> Board:
    document = json.loads(path.read_text(encoding="utf-8"))
    return Board(path.stem, document["title"], tuple(map(_panel, document["panels"])))


def _panel(panel: dict[str, Any]) -> Panel:
    place = panel["gridPos"]
    return Panel(
        kind=panel["type"],
        title=panel["title"],
        description=panel.get("description", ""),
        unit=panel.get("fieldConfig", {}).get("defaults", {}).get("unit", ""),
        place=(place["x"], place["y"], place["w"], place["h"]),
        targets=tuple(Target(t["expr"], t["legendFormat"]) for t in panel.get("targets", ())),
        options=panel.get("fieldConfig", {}).get("defaults", {}),
    )


def _series(result: list[dict[str, Any]]) -> Iterator[Series]:
    for found in result:
        points = [(float(at), float(value)) for at, value in found["values"]]
        known = [(at, value) for at, value in points if math.isfinite(value)]
        if known:
            times, values = zip(*known, strict=True)
            yield Series(found["metric"], times, values)

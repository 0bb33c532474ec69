"""The chart, rendered by Helm's own code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import CHART, missing, render
from tests.deploy.objects import Object

SCENARIOS = {
    path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))
}

ALL = ["default", *SCENARIOS]


@pytest.fixture(autouse=True)
def _needs_helm(request):
    if request.node.get_closest_marker("chart") and (reason := missing()) is not None:
        pytest.skip(reason)


def values_of(scenario: str) -> Object:
    """What a scenario sets; "default" sets nothing."""
    if scenario == "default":
        return {}
    return _read(SCENARIOS[scenario])


@cache
def _rendered(scenario: str) -> list[Object]:
    return render(values_of(scenario))


@pytest.fixture
def chart() -> Callable[..., list[Object]]:
    """`chart("s3", **values)` renders a scenario with further values on top."""

    def make(scenario: str = "default", **values: Any) -> list[Object]:
        if not values:
            return copy.deepcopy(_rendered(scenario))
        return render(merged(values_of(scenario), values))

    return make


def merged(below: Object, above: Object) -> Object:
    """Values laid over others, as Helm does."""
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(key), dict)
        result[key] = merged(below[key], value) if both else value
    return result


def _read(path: Path) -> Object:
    values: Object = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return values

"""Generated data sets by name: questions in splits, and each graph as the text of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from kbqa.datasets.splits import Splits
from kbqa.datasets.world.events import Event, dated_lines, generate_events, read_icews14
from kbqa.datasets.world.everything import generate_world_all
from kbqa.datasets.world.many import generate_worlds
from kbqa.datasets.world.overlapping import generate_overlapping_world
from kbqa.datasets.world.temporal import ask_about_events, temporal_splits
from kbqa.errors import DatasetError

Generated = tuple[Splits, Mapping[str, str]]
"""Questions in splits, and the graphs that they are about: name → text of the graph's file."""

_SIZES = {"cold_start": 450, "train": 3600, "validation": 180, "test": 450}
_OVERLAPPING_SIZES = {"cold_start": 150, "train": 2400, "validation": 120, "test": 900}
_TEMPORAL_SIZES = {"cold_start": 150, "train": 1500, "validation": 120, "test": 240}


@lru_cache(maxsize=1)  # takes ten seconds, and a run asks for its questions several times
def _world_all(seed: int, _: Path | None) -> Generated:
    facts, splits = generate_world_all(seed, _SIZES, "world-all")
    return splits, {"world-all": "".join(f"{line}\n" for line in facts.lines())}


def _world_overlapping(seed: int, _: Path | None) -> Generated:
    world, splits = generate_overlapping_world(seed, _OVERLAPPING_SIZES, "world-overlapping")
    return splits, {"world-overlapping": world.text()}


def _world_inexact(seed: int, _: Path | None) -> Generated:
    world, splits = generate_overlapping_world(seed, _OVERLAPPING_SIZES, "world-inexact", exact=False)
    return splits, {"world-inexact": world.text()}


def _temporal_world(seed: int, _: Path | None) -> Generated:
    return _about(generate_events(seed), seed, "temporal-world")


def _icews14(seed: int, data_directory: Path | None) -> Generated:
    if data_directory is None:
        raise DatasetError(
            "the facts of icews14 are not shipped: set KBQA_DATA to the directory that holds it"
        )
    return _about(read_icews14(data_directory / "icews14"), seed, "icews14")


def _about(events: tuple[Event, ...], seed: int, kg: str) -> Generated:
    asked = ask_about_events(events, seed, _TEMPORAL_SIZES, kg)
    return temporal_splits(asked), {kg: dated_lines(events)}


def _worlds(seed: int, _: Path | None) -> Generated:
    return generate_worlds(seed)


GENERATED: Mapping[str, Callable[[int, Path | None], Generated]] = {
    "world-all": _world_all,
    "world-overlapping": _world_overlapping,
    "world-inexact": _world_inexact,
    "worlds": _worlds,
    "temporal-world": _temporal_world,
    "icews14": _icews14,
}
"""Name → function of a seed and the directory of published data, which returns splits and graphs."""

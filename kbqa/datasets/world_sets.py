"""Generated data sets by name: their questions in splits, and their graph as a file would hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kbqa.datasets.splits import Splits
from kbqa.datasets.world_all import generate_world_all

_SIZES = {"cold_start": 450, "train": 3600, "validation": 180, "test": 450}


def _world_all(seed: int, _: Path | None) -> tuple[Splits, str]:
    facts, splits = generate_world_all(seed, _SIZES, "world-all")
    return splits, "".join(f"{line}\n" for line in facts.lines())


GENERATED: Mapping[str, Callable[[int, Path | None], tuple[Splits, str]]] = {"world-all": _world_all}
"""Name → makes it of a seed, and of the directory where real data lies."""

"""Loads the questions of a file or a data set."""

from __future__ import annotations

from pathlib import Path

from kbqa.datasets.catalog import DATASETS, load_dataset
from kbqa.datasets.records import read_questions
from kbqa.errors import DatasetError
from kbqa.trajectory import Question


def load_questions(name: str, *, seed: int = 0, data_directory: Path | None = None) -> list[Question]:
    """Load the questions of a file, or of all splits of a known data set.

    Raises:
        DatasetError: there is no such data set or file, or it is malformed.
    """
    if name in DATASETS:
        return list(load_dataset(name, seed, data_directory).splits.all)
    if not Path(name).exists():
        raise DatasetError(
            f"{name}: there is no such file: name a file of questions, or one of {', '.join(DATASETS)}"
        )
    return read_questions(Path(name))

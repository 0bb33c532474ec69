"""Loads the questions of a file or a data set."""

from __future__ import annotations

from pathlib import Path

from kbqa.datasets.catalog import DATASETS, load_dataset
from kbqa.datasets.records import read_questions
from kbqa.errors import DatasetError
from kbqa.trajectory import Question


def load_questions(name: str, *, seed: int = 0, data_directory: Path | None = None) -> list[Question]:
    """Load the questions of a file, or of all splits of a data set.

    Raises:
        DatasetError: there is no such data set or file, or it is malformed.
    """
    is_file = Path(name).exists() and name not in DATASETS
    if not is_file and (name in DATASETS or data_directory is not None):
        return list(load_dataset(name, seed, data_directory).splits.all)
    if not is_file:
        raise DatasetError(
            f"{name}: there is no such file: name a file of questions, or one of {', '.join(DATASETS)}"
        )
    return read_questions(Path(name))

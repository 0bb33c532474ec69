"""Loads the questions of a file or a data set."""

from __future__ import annotations

from pathlib import Path

from kbqa.datasets.catalog import DATASETS, load_dataset
from kbqa.datasets.records import read_questions
from kbqa.errors import DatasetError
from kbqa.trajectory import Question


def load_questions(
    name: str, *, seed: int = 0, split: str | None = None, data_directory: Path | None = None
) -> list[Question]:
    """Load the questions of a file or a data set.

    Args:
        split: of a data set; None for all of them. A file has none.

    Raises:
        DatasetError: there is no such data set, split or file, or it is malformed.
    """
    is_file = Path(name).exists() and name not in DATASETS
    if not is_file and (name in DATASETS or data_directory is not None):
        splits = load_dataset(name, seed, data_directory).splits
        return list(splits.all if split is None else splits.named(split))
    if not is_file:
        raise DatasetError(
            f"{name}: there is no such file: name a file of questions, or one of {', '.join(DATASETS)}"
        )
    if split is not None:
        raise DatasetError(f"{name}: a file of questions has no splits: leave --split out")
    return read_questions(Path(name))

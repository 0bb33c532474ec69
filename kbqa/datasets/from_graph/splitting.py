"""Splits questions that were made from a graph, and stores them as a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kbqa.datasets.generalisation import split_by_level
from kbqa.datasets.records import write_questions
from kbqa.datasets.splits import Splits, split_by_path
from kbqa.errors import DatasetError
from kbqa.policy_store.durable import new_directory, put_in_place
from kbqa.trajectory import Question

FEWEST = 100
"""Questions without which there is too little to learn, and to judge by."""

_HELD_OUT = 0.1  # share of the questions for validation, and for testing
_WITHHELD = 0.1  # of the relations and classes, at most: what is withheld is not learned


def split_made(questions: Sequence[Question], seed: int) -> Splits:
    """Hold out questions by schema and by entity.

    At most a tenth of the relations and classes is withheld from training; of a graph with fewer than ten,
    only combinations of them are. If there are too few even of these, questions are held out by entity and
    path.

    Args:
        questions: of one graph, at least one.

    Raises:
        DatasetError: there are fewer than `FEWEST`.
    """
    if len(questions) < FEWEST:
        raise DatasetError(
            f"{questions[0].kg}: only {len(questions)} different questions could be made, and training needs "
            f"{FEWEST}: the graph is too small to train on; the reader answers about it without training"
        )
    size = round(_HELD_OUT * len(questions))
    splits = split_by_level(questions, seed, validation=size, test=size, withheld=_WITHHELD)
    if splits.validation and splits.test:
        return splits
    return split_by_path(questions, seed, cold_start=0, validation=size, test=size)


def write_splits(splits: Splits, directory: Path) -> None:
    """Store splits as a data set of that directory's name; it is there whole or not at all.

    Raises:
        OSError: the directory cannot be written, or exists.
    """
    with new_directory(directory.parent) as aside:
        for part in ("train", "validation", "test"):
            write_questions(aside / f"{part}.jsonl", getattr(splits, part))
        put_in_place(aside, directory)

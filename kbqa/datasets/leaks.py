"""Measures how much of a test split is known from the training questions.

A random split of questions that were generated from a graph leaks, because paraphrases of one
question fall on both sides. All shares are shares of test questions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from kbqa.answers import normalise
from kbqa.trajectory import Question


@dataclass(frozen=True, slots=True)
class Leaks:
    """Overlap of a test split with the training questions.

    Attributes:
        questions: number of test questions.
        with_path: number of test questions with a gold path.
        texts: share of questions whose normalised text is that of a training question.
        paths: share of questions with a path whose path occurs in training.
        pairs: likewise for (topic entities, path), which is the same question in other words.
    """

    questions: int
    with_path: int
    texts: float
    paths: float
    pairs: float


def leaks(training: Iterable[Question], test: Sequence[Question]) -> Leaks:
    """How much of `test` is known from `training`; shares of empty sets are 0."""
    known = list(training)
    with_path = [question for question in test if question.path]
    return Leaks(
        len(test),
        len(with_path),
        texts=_share(known, test, lambda question: normalise(question.text)),
        paths=_share(known, with_path, lambda question: question.path),
        pairs=_share(known, with_path, lambda question: (question.topic_entities, question.path)),
    )


def _share(
    training: Sequence[Question], test: Sequence[Question], key: Callable[[Question], Hashable]
) -> float:
    seen = {key(question) for question in training}
    return sum(key(question) in seen for question in test) / len(test) if test else 0.0

"""What a test split asks that the training questions have asked already.

A random split of questions that were made from a graph leaks: paraphrases of one question fall
on both sides. Each share here is one of test questions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from kbqa.answers import normalise
from kbqa.trajectory import Question


@dataclass(frozen=True, slots=True)
class Leaks:
    """Attributes:
    questions: how many the test split has.
    with_path: how many of them have a gold path.
    texts: share whose text, normalised, is a training question's.
    paths: share of those with a path whose path is one of training.
    pairs: likewise of (topic entities, path): the same question in other words.
    """

    questions: int
    with_path: int
    texts: float
    paths: float
    pairs: float


def leaks(training: Iterable[Question], test: Sequence[Question]) -> Leaks:
    """How much of `test` is known from `training`; a share of nothing is 0."""
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

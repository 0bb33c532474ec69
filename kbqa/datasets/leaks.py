"""Measures how much of a test split is known from the training questions.

A random split of questions that were generated from a graph leaks, because paraphrases of one
question fall on both sides. All shares are shares of test questions.

Wordings are near-duplicates if they have the same words, apart from order, repetition and function words:
"the director of Heat" and "who is Heat 's director ?". Words that change what is asked for (when, where, how
many, not) count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbqa.answers import answer_set, normalise
from kbqa.datasets.gold import is_computed
from kbqa.kg.ranking.encoders import words
from kbqa.trajectory import Question

_FUNCTION_WORDS = frozenset(
    words(
        "a an the of by in on at to for from with and or that which who whom whose what it its they them "
        "their is are was were be been being do does did has have had s name list tell me give"
    ).split()
)


@dataclass(frozen=True, slots=True)
class Leaks:
    """Overlap of a test split with the training questions.

    Attributes:
        questions: number of test questions.
        with_path: number of test questions with a gold path.
        texts: share of questions whose normalised text is that of a training question.
        paths: share of questions with a path whose path occurs in training.
        pairs: likewise for (topic entities, path), which is the same question in other words.
        with_answers: number of test questions with gold answers other than numbers, dates and truth values,
            which unlike questions share.
        answers: share of these whose set of gold answers is that of a training question.
        wordings: share of questions whose wording is a near-duplicate of that of a training question.
    """

    questions: int
    with_path: int
    texts: float
    paths: float
    pairs: float
    with_answers: int
    answers: float
    wordings: float


def leaks(training: Iterable[Question], test: Sequence[Question]) -> Leaks:
    """How much of `test` is known from `training`; shares of empty sets are 0."""
    known = list(training)
    with_path = [question for question in test if question.path]
    with_answers = [question for question in test if not all(map(is_computed, question.answers))]
    return Leaks(
        len(test),
        len(with_path),
        texts=_share(known, test, lambda question: normalise(question.text)),
        paths=_share(known, with_path, lambda question: question.path),
        pairs=_share(known, with_path, lambda question: (question.topic_entities, question.path)),
        with_answers=len(with_answers),
        answers=_share(known, with_answers, lambda question: answer_set(question.answers)),
        wordings=_share(known, test, _gist),
    )


def leaks_between(parts: Mapping[str, Sequence[Question]]) -> dict[str, Leaks]:
    """How much of each part is known from the others, by name; empty parts are left out."""
    return {
        name: leaks((question for other in parts if other != name for question in parts[other]), questions)
        for name, questions in parts.items()
        if questions
    }


def _gist(question: Question) -> frozenset[str]:
    """What makes a wording: its words without function words, or all of them if there are no others."""
    found = frozenset(words(question.text).split())
    return found - _FUNCTION_WORDS or found


def _share(
    training: Sequence[Question], test: Sequence[Question], key: Callable[[Question], Hashable]
) -> float:
    seen = {key(question) for question in training}
    return sum(key(question) in seen for question in test) / len(test) if test else 0.0

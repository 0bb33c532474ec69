"""Statistics of a data set: questions, hops, operations, levels, and leaks of its test split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbqa.datasets.generalisation import with_levels
from kbqa.datasets.leaks import Leaks, leaks
from kbqa.trajectory import Question

_TRAINING = ("cold_start", "train")


@dataclass(frozen=True, slots=True)
class Contents:
    """Statistics of a split.

    Attributes:
        questions: number of questions.
        answers: mean number of gold answers, over the questions that have any.
        without_answers, without_topics, without_program: numbers of questions without them.
        hops: length of the gold path (0 if unknown) → number of questions.
        operations, levels: value → number of questions; questions without one are not counted.
    """

    questions: int
    answers: float
    without_answers: int
    without_topics: int
    without_program: int
    hops: dict[int, int]
    operations: dict[str, int]
    levels: dict[str, int]


@dataclass(frozen=True, slots=True)
class Inspection:
    """Statistics of a data set.

    Attributes:
        splits: of each split that is not empty.
        leaks: of each held-out split; empty if there is no training split.
    """

    splits: dict[str, Contents]
    leaks: dict[str, Leaks]


def inspect(splits: Mapping[str, Sequence[Question]]) -> Inspection:
    """Compute the statistics of splits, given by name.

    The training splits are `cold_start` and `train`, or `dev` if there is neither. Levels are taken
    from the data set, or else computed from the questions' and the training programs.
    """
    filled = {name: questions for name, questions in splits.items() if questions}
    names = [name for name in _TRAINING if name in filled] or [name for name in ("dev",) if name in filled]
    training = [question for name in names for question in filled[name]]
    held_out = {name: tuple(questions) for name, questions in filled.items() if name not in names}
    if training:
        held_out = {name: _levelled(training, questions) for name, questions in held_out.items()}
    contents = {name: _contents(held_out.get(name, questions)) for name, questions in filled.items()}
    found = {name: leaks(training, questions) for name, questions in held_out.items()} if training else {}
    return Inspection(contents, found)


def _levelled(training: Sequence[Question], questions: tuple[Question, ...]) -> tuple[Question, ...]:
    return questions if any(question.level for question in questions) else with_levels(training, questions)


def _contents(questions: Sequence[Question]) -> Contents:
    counts = [len(question.answers) for question in questions if question.answers]
    programs = (question.path or question.form or question.sparql for question in questions)
    return Contents(
        questions=len(questions),
        answers=sum(counts) / len(counts) if counts else 0.0,
        without_answers=len(questions) - len(counts),
        without_topics=sum(not question.topic_entities for question in questions),
        without_program=sum(not program for program in programs),
        hops=dict(sorted(Counter(question.hops for question in questions).items())),
        operations=_counted(question.operation for question in questions),
        levels=_counted(question.level for question in questions),
    )


def _counted(kinds: Iterable[str]) -> dict[str, int]:
    """Counts of the non-empty kinds, the most frequent first."""
    return dict(Counter(kind for kind in kinds if kind).most_common())

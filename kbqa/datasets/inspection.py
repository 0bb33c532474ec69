"""What a data set holds, counted: questions, hops, operations, levels, and what its test split leaks."""

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
    """What a split holds.

    Attributes:
        answers: gold answers of a question, on average over those that have any.
        without_answers, without_topics, without_program: questions that lack them.
        hops: questions by the length of their gold path; 0 where none is known.
        operations, levels: questions by them; those without one are not counted.
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
    """Attributes:
    splits: those that have questions.
    leaks: of each split that is not trained on, where there is one that is.
    """

    splits: dict[str, Contents]
    leaks: dict[str, Leaks]


def inspect(splits: Mapping[str, Sequence[Question]]) -> Inspection:
    """Count what is in splits by their names.

    Training are `cold_start` and `train`, and `dev` where there is neither. A question's level is
    that of its data set, or else what its program and those of training make it.
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
    """How often each kind occurs, the most frequent first; the empty one is none."""
    return dict(Counter(kind for kind in kinds if kind).most_common())

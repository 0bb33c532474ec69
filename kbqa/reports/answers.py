"""Answers to test questions, one by one, as runs and evaluations have left them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from kbqa.confidence import is_right
from kbqa.errors import ConfigurationError
from kbqa.evaluation.comparison import Difference, Pair, difference
from kbqa.evaluation.significance import bootstrap, mcnemar
from kbqa.reports.views import DifferenceView, Score
from kbqa.runs.judged import JudgedPhase
from kbqa.runs.traces import TracedTurn

Key = tuple[str, str]
"""A question's id and text: the questions of two seeds of a generated data set share ids."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Attributes:
    cluster: questions of one cluster ask for the same.
    status: how the episode ended.
    turns: None if they are not on record.
    """

    id: str
    question: str
    cluster: str
    gold: list[str]
    answers: list[str]
    f1: float
    status: str
    turns: list[TracedTurn] | None

    @property
    def is_right(self) -> bool:
        return is_right(self.f1)


class Answers:
    """The answers of one policy to the questions of a split."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers: Mapping[Key, Answer] = {(one.id, one.question): one for one in answers}

    def score(self) -> Score:
        """Mean F1, with an interval over the clusters of questions."""
        answers = list(self._answers.values())
        clusters = [one.cluster for one in answers]
        f1 = [one.f1 for one in answers]
        interval = bootstrap(f1, groups=clusters)
        assert interval is not None, "there are answers"
        return Score(
            mean=fmean(f1),
            low=interval.low,
            high=interval.high,
            questions=len(answers),
            clusters=len(set(clusters)),
        )

    def shared(self, other: Answers) -> Iterator[tuple[Answer, Answer]]:
        """The answers of both to the questions that both were asked."""
        for key, ours in self._answers.items():
            if (theirs := other._answers.get(key)) is not None:
                yield ours, theirs


def minus(ours: Answers, theirs: Answers) -> DifferenceView | None:
    """The difference in F1 over the questions that both were asked; None if there are none."""
    shared = list(ours.shared(theirs))
    if not shared:
        return None
    found: Difference = difference(
        [Pair(one.f1, other.f1, one.cluster) for one, other in shared], is_binary=False
    )
    won = sum(one.is_right and not other.is_right for one, other in shared)
    lost = sum(other.is_right and not one.is_right for one, other in shared)
    return DifferenceView(
        ours=found.ours,
        theirs=found.theirs,
        mean=found.difference,
        low=found.interval.low,
        high=found.interval.high,
        questions=len(shared),
        clusters=len({one.cluster for one, _ in shared}),
        won=won,
        lost=lost,
        p=mcnemar(won, lost).p,
    )


def of_phase(phase: JudgedPhase) -> Answers:
    """What a phase of a run answered."""
    return Answers(
        Answer(
            id=one.id,
            question=one.question,
            cluster=one.cluster,
            gold=one.gold,
            answers=one.answers,
            f1=one.components["f1"],
            status=one.status,
            turns=one.turns or None,
        )
        for one in phase.questions
    )


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """What `kbqa eval --json` has written.

    Attributes:
        how: the recipe or baseline that it was played by.
    """

    policy: str
    how: str
    dataset: str
    split: str
    seed: int
    created_at: str
    seconds: float
    answers: Answers

    @classmethod
    def read(cls, path: Path) -> EvaluationFile:
        """Raises: ConfigurationError: the file cannot be read, or is not the JSON of an evaluation."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if not values["records"]:
                raise ValueError("it has no questions")
            return cls(
                policy=str(values["policy"]),
                how=str(values["baseline"] or values["recipe"]),
                dataset=str(values["dataset"]),
                split=str(values["split"]),
                seed=int(values["seed"]),
                created_at=str(values["created_at"]),
                seconds=float(values["seconds"]),
                answers=Answers(map(_answer, values["records"])),
            )
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} was not written by kbqa eval --json ({error!r})") from error


def _answer(record: Mapping[str, Any]) -> Answer:
    return Answer(
        id=str(record["id"]),
        question=str(record["question"]),
        cluster=str(record["group"]),
        gold=list(map(str, record["gold"])),
        answers=list(map(str, record["answers"])),
        f1=float(record["measures"]["f1"]),
        status=str(record["status"]),
        turns=None,
    )

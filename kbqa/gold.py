"""Compares an episode's answers with the gold answers of its question.

An answer may be given by its id or its label, whichever the gold answers are. If a question has several
sets of gold answers, the one with the highest F1 counts for all measures, as in WebQSP's evaluation
script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kbqa.answers import answer_set, f1, resolve
from kbqa.trajectory import Question, Trajectory


class Verdict(Protocol):
    """The decision of a judge; see `kbqa.judges`."""

    @property
    def correct(self) -> bool: ...


V = TypeVar("V", bound=Verdict)
Names = Mapping[str, Sequence[str]]
"""Id or label → what else is called so: labels or ids."""


class Comparison(NamedTuple):
    """Answers beside the gold answers with which they are compared.

    Attributes:
        answers: in the form of the gold answers, as `kbqa.answers.resolve` converts them.
        gold: the set of gold answers that they agree with most; the first of several.
    """

    answers: list[str]
    gold: tuple[str, ...]


def compare(question: Question, answers: Sequence[str], ids: Sequence[Sequence[str]]) -> Comparison:
    """The comparison with the set of gold answers that gives the highest F1.

    Args:
        ids: for each answer, ids of the entities for which it stands; missing entries mean none.
    """
    return max(comparisons(question, answers, ids), key=lambda compared: f1(*compared))


def comparisons(question: Question, answers: Sequence[str], ids: Sequence[Sequence[str]]) -> list[Comparison]:
    """The comparison with each set of gold answers."""
    return [Comparison(resolve(answers, ids, gold, question.names), gold) for gold in question.golds]


def judged(
    verdict: Callable[[str, Sequence[str], Sequence[str], Names], V],
    question: Question,
    answers: Sequence[str],
    ids: Sequence[Sequence[str]],
    runs: Iterable[Trajectory],
) -> V:
    """A judge's verdict: one that accepts the answers for some set of gold answers, else on the nearest set.

    Args:
        verdict: of the judge; see `kbqa.judges.Judge`.
        runs: from which the answers are; their observations tell the judge the labels of ids.

    Raises:
        JudgeUnavailableError: the judge gave no verdict.
    """
    sets = sorted(comparisons(question, answers, ids), key=lambda compared: -f1(*compared))
    names = _other_names(question, runs)
    found: V | None = None
    for named, gold in sets:
        called = {name: names[name] for name in (*gold, *named) if name in names}
        said = verdict(question.text, gold, named, called)
        if said.correct:
            return said
        found = found or said
    assert found is not None, "a question has at least one set of gold answers"
    return found


def gold_names(question: Question) -> frozenset[str]:
    """Every name of every gold answer, normalised."""
    names = (name for names in (*question.golds, *question.names) for name in names)
    return answer_set(names)


def _other_names(question: Question, runs: Iterable[Trajectory]) -> Names:
    """The other names of gold answers, and the labels of retrieved entities."""
    found = {
        id_: (label,)
        for run in runs
        for action in run.actions
        for id_, label in zip(action.items, action.labels, strict=False)
        if label != id_
    }
    return found | {answer: tuple(names) for answer, *names in question.names}

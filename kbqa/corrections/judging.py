"""Whether what was learned in a lesson may answer users: both versions answer the same questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from kbqa.datasets.gold import gold_namer
from kbqa.evaluation import Record
from kbqa.kg.tools import ListedGraphTools
from kbqa.policy_store import PolicyVersion
from kbqa.serving.answering import answered
from kbqa.trajectory import Question

CORRECTIONS, EARLIER = "corrections", "earlier"
"""The parts of a lesson's questions."""

MOST_LOST = 0.01
"""Mean F1 that held-out earlier questions may lose."""

LEAST_LEARNED = 0.5
"""Share of what was missing in the F1 of a teacher's new corrections that a lesson has to add."""

_MUST = "must-answer"
_NAMED = 5  # questions that a reason names


@dataclass(frozen=True, slots=True)
class Judgement:
    """What two versions answer.

    Attributes:
        before, after: mean F1 of each on the corrections and on held-out earlier questions, by part.
        broken: ids of must-answer questions that only the version before answers right.
        learned: mean F1 of both versions on the new corrections of each teacher.
    """

    before: Mapping[str, float]
    after: Mapping[str, float]
    broken: Sequence[str] = ()
    learned: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def objections(self) -> list[str]:
        """Why the version after may not be promoted; nothing if it may."""
        reasons = []
        lost = self.before[EARLIER] - self.after[EARLIER]
        if round(lost, 6) > MOST_LOST:
            reasons.append(f"earlier questions lose {lost:.3f} of their F1; at most {MOST_LOST:g} is allowed")
        if self.broken:
            named = ", ".join(self.broken[:_NAMED]) + (" …" if len(self.broken) > _NAMED else "")
            reasons.append(f"must-answer questions break: {named}")
        for teacher, (old, new) in self.learned.items():
            # What the replay keeps from being learned contradicts it.
            if new - old < LEAST_LEARNED * (1 - old):
                who = teacher or "users without a key"
                reasons.append(f"too little of what {who} said was learned: F1 {old:.3f} → {new:.3f}")
        return reasons


def compare(
    before: PolicyVersion,
    after: PolicyVersion,
    tools: ListedGraphTools,
    corrections: Sequence[Question],
    earlier: Sequence[Question],
    must_answer: Sequence[Question],
    new: Mapping[str, str],
) -> Judgement:
    """Ask two versions the same questions.

    Args:
        new: ids of the corrections that the version before was not taught, each with its teacher.
        earlier: questions that neither was trained on.

    Raises:
        PolicyError, GraphError: a version cannot be asked, or the graph does not answer.
    """
    parts = {CORRECTIONS: corrections, EARLIER: earlier, _MUST: must_answer}
    questions = [replace(one, part=part, id=f"{part}/{one.id}") for part, of in parts.items() for one in of]
    questions = list(map(gold_namer(questions, tools, CORRECTIONS), questions))
    asked_before, asked_after = (answered(version, questions, tools) for version in (before, after))
    broken = tuple(
        was.question.id.partition("/")[2]
        for was, now in zip(asked_before, asked_after, strict=True)
        if was.question.part == _MUST and was.is_right and not now.is_right
    )
    teachers = {f"{CORRECTIONS}/{id_}": teacher for id_, teacher in new.items()}
    old, young = (_f1(records, lambda one: teachers.get(one.id)) for records in (asked_before, asked_after))
    return Judgement(
        _f1(asked_before, _part),
        _f1(asked_after, _part),
        broken,
        {teacher: (f1, young[teacher]) for teacher, f1 in old.items()},
    )


def _part(question: Question) -> str | None:
    return None if question.part == _MUST else question.part


def _f1(records: Sequence[Record], group: Callable[[Question], str | None]) -> dict[str, float]:
    """Mean F1 of each group of questions; None stands for no group."""
    values = defaultdict[str, list[float]](list)
    for record in records:
        if (name := group(record.question)) is not None:
            values[name].append(record.each[0]["f1"].value)
    return {name: fmean(those) for name, those in values.items()}

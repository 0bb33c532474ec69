"""What users say are the right answers to a question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kbqa.feedback import Feedback
from kbqa.trajectory import Question


@dataclass(frozen=True, slots=True)
class Correction:
    """A question with the answers that a user says are right.

    Attributes:
        id: that of the feedback.
        answers: by id or exact label.
        topic_entities: as those of a `Question`.
        graph: id of a per-question subgraph, if the question was asked about one.
        teacher: name of the user's key; empty if it had none.
        time: when the user said so.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    topic_entities: tuple[str, ...]
    kg: str
    teacher: str
    time: datetime
    graph: str | None = None
    comment: str | None = None

    @property
    def asked(self) -> tuple[str, str, str | None]:
        """What is asked, however it is spaced and punctuated."""
        return same_question(self.text), self.kg, self.graph

    def question(self) -> Question:
        """The question to learn from."""
        return Question(self.id, self.text, self.answers, self.topic_entities, self.kg, self.graph)


def corrections_of(feedback: Iterable[Feedback], names: Mapping[str, str]) -> list[Correction]:
    """The corrections in feedback: of each question, what each teacher has said last.

    Feedback that does not say which answers are right makes no correction, and withdraws an earlier one by
    the same teacher.

    Args:
        feedback: oldest first.
        names: of keys, by their id. Keys of the same name are one teacher's.
    """
    last: dict[tuple[tuple[str, str, str | None], str], Correction] = {}
    for said in feedback:
        correction = Correction(
            id=said.id,
            text=said.question,
            answers=said.gold or (),
            topic_entities=said.topic_entities,
            kg=said.kg,
            teacher=names.get(said.owner, said.owner),
            time=said.time,
            graph=said.graph,
            comment=said.comment,
        )
        last[correction.asked, correction.teacher] = correction
    return sorted((one for one in last.values() if one.answers), key=lambda one: one.time)


def same_question(text: str) -> str:
    """The text by which two questions are recognised as the same one."""
    return " ".join(text.casefold().split()).rstrip("?!. ")

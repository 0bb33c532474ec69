"""What a conversation holds: its latest questions, each complete, with the entities in it and its answers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

MAX_EXCHANGES = 8
"""Exchanges that are kept; what was said before them is forgotten."""

MAX_NAMES = 5
"""Answers and names of a question that a later one may refer to; an exchange holds no more."""


class Thing(BaseModel):
    """An entity, by its id, as it is called in the conversation."""

    model_config = ConfigDict(frozen=True)

    id: str
    label: str


class Name(Thing):
    """An entity that a question names: `question[start:end]`."""

    start: int
    end: int


class Exchange(BaseModel):
    """A question and its answer.

    Attributes:
        question: the complete question.
        names: the entities that it names, in their order.
        answers: the entities that answer it; none if they are values or more than `MAX_NAMES`.
        topic: the place in the question of what it is about, if an incomplete question has put it there: in
            "Where was Ali's brother born?" that of "Ali's brother".
    """

    model_config = ConfigDict(frozen=True)

    question: str
    names: tuple[Name, ...] = ()
    answers: tuple[Thing, ...] = ()
    topic: tuple[int, int] | None = None

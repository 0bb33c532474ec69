"""Batches: many questions in one file, answered when the gateway has time for them.

A batch is a file of JSON lines, each a `BatchLine`. Each line gets exactly one `BatchAnswer`; answers come in
the order in which they are ready.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from kbqa.client.events import Problem
from kbqa.client.models import AnswerRequest, AnswerResponse

LineId = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class BatchLine(AnswerRequest):
    """One question of a batch.

    Attributes:
        id: returned with the answer, and unique in its batch (default: the line's number, from 1).
        stream, session, understood: lines are not streamed, and belong to no conversation.
    """

    id: LineId | None = None
    stream: Literal[False] = False
    session: None = None
    understood: None = None


class BatchAnswer(BaseModel):
    """What became of one line: an answer, or the problem because of which there is none.

    Attributes:
        line: number of the line, from 1.
        id: that of the line; its number if the line has none or cannot be read.
    """

    line: int
    id: str
    answer: AnswerResponse | None = None
    error: Problem | None = None


BatchState = Literal["running", "done", "cancelled"]


class BatchModel(BaseModel):
    """A batch and its progress.

    Attributes:
        state: `running` until each line has its answer, also while the lines wait.
        lines: number of its lines; blank ones do not count.
        answered: lines that have an answer or an error.
        errors: lines that have an error.
        waiting: why no line makes progress now; absent if some do.
    """

    id: str
    state: BatchState
    created_at: AwareDatetime
    lines: int = Field(ge=0)
    answered: int = Field(ge=0)
    errors: int = Field(ge=0)
    waiting: str | None = None


class BatchesModel(BaseModel):
    """The batches of a key, oldest first."""

    batches: list[BatchModel]

"""Traces: texts and rewards of rollouts, for people to read.

    runs/<run>/groups/00000012.jsonl.gz     a step: its header, then a group a line

A linear group and a tree are written in the same way: the turns, each with the turn before it, and the
episodes that end in some of them. The bytes of a step and the number of steps of a run are limited. The
newest steps are kept, and older ones at growing distances.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kbqa.errors import RunError
from kbqa.policy_store.durable import write_file

_MOST_BYTES = 8_000_000  # of a step, before it is compressed
_SUFFIX = ".jsonl.gz"
_NAME = re.compile(r"^(\d{8,})\.jsonl\.gz$")

T = TypeVar("T")


class Traced(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TracedAction(Traced):
    """Attributes:
    found: number of items; `labels` are the first ones.
    """

    name: str
    arguments: dict[str, str]
    code: str | None
    kind: str | None
    found: int
    labels: list[str]


class TracedTurn(Traced):
    """A turn, or a step of a tree.

    Attributes:
        parent: index of the turn before it; None at the question.
        text: what the policy wrote, with its tags.
        logprob: mean log-probability of its tokens when it was written; None if it has none.
        advantage: None if it was not trained on.
    """

    parent: int | None
    text: str
    thought: str
    status: str
    well_formed: bool
    actions: list[TracedAction]
    observation: str
    tokens: int
    logprob: float | None
    reward: float
    advantage: float | None
    version: str
    elapsed_ms: float


class TracedEpisode(Traced):
    """Attributes:
    last: index of its last turn; None if it has no turn.
    status: how it ended; None where a cap or deadline cut a tree.
    reward: of all its turns, and its outcome.
    """

    last: int | None
    status: str | None
    answers: list[str]
    reward: float
    outcome: float
    components: dict[str, float]


class TracedSummary(Traced):
    """A group in a list.

    Attributes:
        outcome: what became of it; see `Outcome`.
        statuses: number of episodes by how they ended.
        reward, f1: means over its episodes; `best_f1` is that of the best one.
        kept: whether its turns were kept, too.
    """

    id: str
    step: int
    kind: Literal["linear", "tree"]
    question_id: str
    question: str
    outcome: str
    episodes: int
    turns: int
    statuses: dict[str, int]
    reward: float
    f1: float
    best_f1: float
    kept: bool = True


class TracedGroup(Traced):
    """A group with everything that was said.

    Attributes:
        prompt: what the policy read before its first turn.
        sampled: branches of a tree before pruning.
    """

    summary: TracedSummary
    gold: list[str]
    topics: list[str]
    kg: str
    prompt: str
    sampled: int | None
    turns: list[TracedTurn]
    episodes: list[TracedEpisode]


class TracedStep(Traced):
    """The header of a step."""

    step: int
    version: str
    groups: list[TracedSummary]


class Traces:
    """The traced steps of a run, in a directory.

    Args:
        most: steps that a writer keeps, a third of them the newest.
    """

    def __init__(self, directory: Path, most: int) -> None:
        self._directory, self._most = directory, most

    def write(self, step: int, version: str, groups: Sequence[TracedGroup]) -> None:
        """Keep the groups of a step, and delete surplus steps."""
        if not self._most:
            return
        self._directory.mkdir(exist_ok=True)
        lines, room = [], _MOST_BYTES
        for group in groups:
            line = group.model_dump_json().encode()
            lines.append(line if len(line) <= room else b"")
            room -= len(lines[-1])
        summaries = [
            group.summary if line else group.summary.model_copy(update={"kept": False})
            for group, line in zip(groups, lines, strict=True)
        ]
        header = TracedStep(step=step, version=version, groups=summaries).model_dump_json().encode()
        # Fast compression, no time stamp: training waits for this.
        data = gzip.compress(b"\n".join([header, *lines]), compresslevel=1, mtime=0)
        write_file(self._path(step), data)
        for old in sorted(set(self.steps()) - kept_steps(self.steps(), self._most)):
            self._path(old).unlink(missing_ok=True)

    def forget_after(self, step: int) -> None:
        """Remove the steps after `step`, which a restore has undone."""
        for later in self.steps():
            if later > step:
                self._path(later).unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Steps that are kept, oldest first."""
        if not self._directory.is_dir():
            return []
        names = (_NAME.match(path.name) for path in self._directory.iterdir())
        return sorted(int(name[1]) for name in names if name is not None)

    def step(self, step: int) -> TracedStep | None:
        """The header of a step; None if it is not kept.

        Raises:
            RunError: its file is damaged.
        """
        return self._read(step, lambda lines: TracedStep.model_validate_json(lines.readline()))

    def group(self, step: int, id_: str) -> TracedGroup | None:
        """A group of a step; None if it is not kept.

        Raises:
            RunError: the file of the step is damaged.
        """

        def find(lines: gzip.GzipFile) -> TracedGroup | None:
            header = TracedStep.model_validate_json(lines.readline())
            for summary in header.groups:
                line = lines.readline()
                if summary.id == id_ and summary.kept:
                    return TracedGroup.model_validate_json(line)
            return None

        return self._read(step, find)

    def _read(self, step: int, take: Callable[[gzip.GzipFile], T]) -> T | None:
        path = self._path(step)
        try:
            with gzip.open(path) as lines:
                return take(lines)
        except FileNotFoundError:  # never there, or let go of meanwhile
            return None
        except (OSError, EOFError, ValidationError) as error:
            raise RunError(f"{path} is damaged; remove it: {error}") from error

    def _path(self, step: int) -> Path:
        return self._directory / f"{step:08d}{_SUFFIX}"


def kept_steps(steps: Sequence[int], most: int) -> set[int]:
    """The steps to keep: the newest (a third of `most`), and every 2^k-th of the older ones."""
    newest = max(most // 3, 1)
    older, room = steps[:-newest], most - newest
    stride = 1
    while sum(step % stride == 0 for step in older) > room:
        stride *= 2
    return {*steps[-newest:], *(step for step in older if step % stride == 0)}

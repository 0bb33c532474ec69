"""What the policy of a phase answered to the questions that the run is judged by, question by question.

    runs/<run>/judged/rl.jsonl.gz     a phase (base, cold_start, rl): its header, then a question a line

A mean alone has no interval and cannot be compared question by question; reports read these files.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kbqa.errors import RunError
from kbqa.policy_store.durable import write_file
from kbqa.runs.traces import Traced, TracedTurn

_MOST_BYTES = 16_000_000  # of the turns of a phase, before they are compressed
_SUFFIX = ".jsonl.gz"


class JudgedQuestion(Traced):
    """A question, and the episode that answered it.

    Attributes:
        cluster: questions of one cluster ask for the same; see `kbqa.evaluation.evaluation.cluster_of`.
        hops: of the gold path; 0 if that is unknown.
        status: how the episode ended.
        components: of its reward, `f1` among them.
        turns: empty if turns are not kept.
    """

    id: str
    question: str
    cluster: str
    hops: int
    gold: list[str]
    answers: list[str]
    status: str
    components: dict[str, float]
    turns: list[TracedTurn]


class JudgedHeader(Traced):
    """Attributes:
    version: full id of the policy version that answered.
    split: test, or validation where a run leaves the test questions unseen.
    """

    version: str
    split: str


class JudgedPhase(Traced):
    header: JudgedHeader
    questions: list[JudgedQuestion]


class Judged:
    """The judged phases of a run, in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, phase: str, header: JudgedHeader, questions: Sequence[JudgedQuestion]) -> None:
        """Keep the answers of a phase; those of an earlier attempt at it are replaced.

        Turns beyond 16 MB are left out, results never.
        """
        self._directory.mkdir(exist_ok=True)
        lines, room = [header.model_dump_json().encode()], _MOST_BYTES
        for question in questions:
            line = question.model_dump_json().encode()
            if len(line) > room:
                line = question.model_copy(update={"turns": []}).model_dump_json().encode()
            else:
                room -= len(line)
            lines.append(line)
        # Fast compression, no time stamp: training waits for this.
        write_file(self._path(phase), gzip.compress(b"\n".join(lines), compresslevel=1, mtime=0))

    def read(self, phase: str) -> JudgedPhase | None:
        """The answers of a phase; None if they are not kept.

        Raises:
            RunError: the file is damaged.
        """
        path = self._path(phase)
        try:
            header, *lines = gzip.decompress(path.read_bytes()).split(b"\n")
            return JudgedPhase(
                header=JudgedHeader.model_validate_json(header),
                questions=[JudgedQuestion.model_validate_json(line) for line in lines],
            )
        except FileNotFoundError:  # the phase is not over, or an earlier version of kbqa has trained the run
            return None
        except (OSError, EOFError, ValidationError) as error:
            raise RunError(f"{path} is damaged; remove it: {error}") from error

    def _path(self, phase: str) -> Path:
        return self._directory / f"{phase}{_SUFFIX}"

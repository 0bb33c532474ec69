"""Runs as directories: their configuration, progress and results.

    runs/<run>/run.json         the service's: recipe, data set, seed, state
    runs/<run>/progress.json    the training process's: phase, step, results
    runs/<run>/metrics.jsonl    one record a line, numbered by `seq`
    runs/<run>/demonstrations.jsonl   what its cold start imitates, see `kbqa.cold_start.files`
    runs/<run>/ledger.json      groups in flight, outcomes of those settled since, as of the last checkpoint
    runs/<run>/settled.jsonl    outcomes of all groups before them, in its first `archive_bytes` (ledger.json)
    runs/<run>/summary.json     the results, once the run is done
    runs/<run>/groups/          texts and rewards of the rollouts of steps, see `kbqa.runs.traces`
    runs/<run>/judged/          answers to the questions that phases are judged by, see `kbqa.runs.judged`
    runs/<run>/inbox/           replies that are not settled by a checkpoint yet
    runs/<run>/checkpoints/
    runs/<run>/train.log        what the training process logged

Each file has one writer.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kbqa.errors import RunConflictError, RunError, RunNotFoundError
from kbqa.policy_store.durable import write_file
from kbqa.recipes import Recipe, recipe_from
from kbqa.runs.inbox import Inbox
from kbqa.runs.judged import Judged
from kbqa.runs.record_file import RecordFile
from kbqa.runs.traces import Traces
from kbqa.wire import RUN_PATTERN

logger = logging.getLogger(__name__)

_RUN = re.compile(RUN_PATTERN)


class State(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    """Told to stop; it can be resumed."""
    FAILED = "failed"
    """It cannot go on as it is; `error` says why. It can be resumed once that is mended."""
    DONE = "done"


class SplitLimits(BaseModel):
    """At most that many questions of each split; None takes all.

    Attributes:
        test: spread over the split; with 0 a run's phases are judged by the validation questions, so
            that the test questions stay unseen while a recipe is still being chosen.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: Annotated[int, Field(ge=1)] | None = None
    validation: Annotated[int, Field(ge=1)] | None = None
    test: Annotated[int, Field(ge=0)] | None = None


class RunRecord(BaseModel):
    """`run.json`.

    Attributes:
        recipe: all resolved values.
        restarts: times that the training process died and was started again.
        error: why the run failed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    id: str
    recipe: dict[str, Any]
    dataset: str
    limits: SplitLimits
    seed: int
    created_at: str
    state: State = State.RUNNING
    restarts: int = 0
    error: str | None = None

    def resolved_recipe(self) -> Recipe:
        return recipe_from(self.recipe, f"run {self.id}")


class RunDirectory:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress_path = path / "progress.json"
        self.metrics_path = path / "metrics.jsonl"
        self.demonstrations_path = path / "demonstrations.jsonl"
        self.ledger_path = path / "ledger.json"
        self.settled_path = path / "settled.jsonl"
        self.summary_path = path / "summary.json"
        self.log_path = path / "train.log"
        self.checkpoints_path = path / "checkpoints"

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.path / "inbox")

    def traces(self, most: int = 0) -> Traces:
        """The rollouts of its steps, of which a writer keeps at most so many."""
        return Traces(self.path / "groups", most)

    @property
    def judged(self) -> Judged:
        return Judged(self.path / "judged")

    def read(self) -> RunRecord:
        """The run's configuration and state.

        Raises:
            RunError: `run.json` is missing or damaged.
        """
        try:
            return RunRecord.model_validate_json((self.path / "run.json").read_bytes())
        except (OSError, ValidationError) as error:
            raise RunError(f"run {self.id} cannot be read: {error}") from error

    def require_unfinished(self) -> RunRecord:
        """What `read` returns.

        Raises:
            RunConflictError: the run is done.
        """
        record = self.read()
        if record.state is State.DONE:
            raise RunConflictError(
                f"run {self.id} is done; to let its policy answer users, run: kbqa promote {self.id}"
            )
        return record

    def write(self, record: RunRecord) -> None:
        write_file(self.path / "run.json", record.model_dump_json(indent=1).encode())

    def progress(self) -> dict[str, Any]:
        """Latest progress; empty before there is any."""
        return read_json(self.progress_path)

    def records(self, since: int = 0) -> list[dict[str, Any]]:
        """Metrics records numbered above `since`, oldest first."""
        return RecordFile(self.metrics_path).since(since)

    def newest_records(self, count: int) -> list[dict[str, Any]]:
        """So many metrics records, oldest first."""
        return RecordFile(self.metrics_path).newest(count)


class Runs:
    """All runs under one directory.

    Args:
        root: usually `KBQA_HOME/runs`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unreadable: set[str] = set()  # runs that were reported

    def create(
        self, recipe: Recipe, dataset: str, limits: SplitLimits, seed: int, name: str | None = None
    ) -> RunDirectory:
        """A new run, in state running.

        Args:
            name: its id, and so the name of its policy; unless given, of data set and time.

        Raises:
            RunConflictError: there is a run of that name.
        """
        now = datetime.now(UTC)
        stem = re.sub(r"[^a-z0-9]+", "-", dataset.lower()).strip("-")[:32] or "run"
        directory = RunDirectory(self.root / (name or f"{stem}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"))
        try:
            directory.path.mkdir(parents=True)
        except FileExistsError as error:
            raise RunConflictError(
                f"run {directory.id} already exists: resume it (kbqa resume {directory.id}), or choose "
                "another name"
            ) from error
        record = RunRecord(
            id=directory.id,
            recipe=recipe.model_dump(mode="json"),
            dataset=dataset,
            limits=limits,
            seed=seed,
            created_at=now.isoformat(timespec="seconds"),
        )
        directory.write(record)
        return directory

    def get(self, run: str) -> RunDirectory:
        """A run by its id.

        Raises:
            RunNotFoundError: there is none.
        """
        directory = RunDirectory(self.root / run)
        if not _RUN.match(run) or not (directory.path / "run.json").is_file():
            raise RunNotFoundError(f"no run {run!r}; see GET /v1/runs")
        return directory

    def all(self) -> list[RunDirectory]:
        """Every run that can be read, oldest first."""
        if not self.root.is_dir():
            return []
        found = []
        for path in self.root.iterdir():
            if not _RUN.match(path.name) or not (path / "run.json").is_file():
                continue
            directory = RunDirectory(path)
            try:
                found.append((directory.read().created_at, directory.id, directory))
            except RunError as error:  # the others can still be trained
                if path.name not in self._unreadable:
                    logger.error("a run is left out", extra={"run": path.name, "reason": str(error)})
                self._unreadable.add(path.name)
        return [directory for *_, directory in sorted(found, key=lambda entry: entry[:2])]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object that was written atomically; empty if the file is not there."""
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    assert isinstance(values, dict)
    return values

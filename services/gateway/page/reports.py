"""`GET /v1/reports`: reports of training runs, read from the runs under `KBQA_HOME`.

A run leaves its results in `summary.json` and its trajectories in `groups/`. `Report.kind` leaves room for
other kinds of reports than those of training.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, ValidationError

from kbqa.errors import RunError
from kbqa.runs.traces import Traces
from kbqa.wire import RUN_PATTERN

_RUN = re.compile(RUN_PATTERN)


class ReportNotFoundError(RunError):
    """No run with this id has left a report."""


class TrainingSummary(BaseModel):
    """`summary.json` of a run; scores are means over held-out questions, by phase.

    Attributes:
        f1_by_hops: phase → number of hops of a question → score.
        seconds: duration of the run.
        policy: the resulting version.
        ended: why the run ended early, if it did.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    f1: dict[str, float]
    f1_by_hops: dict[str, dict[str, float]]
    questions: int
    seconds: float
    seed: int
    dataset: str
    policy: str
    ended: str | None = None


class Report(BaseModel):
    """Attributes:
    summary: None if the run is not done, or if the file cannot be read.
    problem: why the summary's file cannot be read, if it cannot.
    written_at: modification time of the summary or, without one, of the groups.
    steps: number of steps whose trajectories are stored.
    """

    id: str
    kind: Literal["training"] = "training"
    written_at: datetime
    summary: TrainingSummary | None = None
    problem: str | None = None
    steps: int


class ReportList(BaseModel):
    reports: list[Report]


class Reports:
    """The reports of the runs under one directory.

    Args:
        root: usually `KBQA_HOME/runs`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def all(self) -> list[Report]:
        """The reports of all runs that have a summary or groups, newest first."""
        if not self._root.is_dir():
            return []
        found = [self._report(path) for path in self._root.iterdir() if _is_report(path)]
        return sorted(found, key=lambda report: (report.written_at, report.id), reverse=True)

    def get(self, run: str) -> Report:
        """The report of a run.

        Raises:
            ReportNotFoundError: the run has no report.
        """
        return self._report(self._path(run))

    def traces(self, run: str) -> Traces:
        """The stored trajectories of a run.

        Raises:
            ReportNotFoundError: there is no such run.
        """
        return Traces(self._path(run) / "groups", most=0)

    def _path(self, run: str) -> Path:
        path = self._root / run
        if not _RUN.match(run) or not _is_report(path):
            raise ReportNotFoundError(f"there is no report of run {run!r}: see GET /v1/reports")
        return path

    @staticmethod
    def _report(path: Path) -> Report:
        summary, problem, file = None, None, path / "summary.json"
        try:
            summary = TrainingSummary.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            file = path / "groups"
        except (OSError, ValidationError) as error:
            problem = f"summary.json cannot be read: {error}"
        return Report(
            id=path.name,
            written_at=datetime.fromtimestamp(file.stat().st_mtime, UTC),
            summary=summary,
            problem=problem,
            steps=len(Traces(path / "groups", most=0).steps()),
        )


def _is_report(path: Path) -> bool:
    return bool(_RUN.match(path.name)) and ((path / "summary.json").is_file() or (path / "groups").is_dir())


def reports_router(reports: Reports) -> APIRouter:
    """Routes of the reports; they read files, so they run in threads."""
    router = APIRouter(tags=["reports"])

    @router.get("/v1/reports", summary="Reports of all runs, newest first")
    def all_reports() -> ReportList:
        return ReportList(reports=reports.all())

    @router.get("/v1/reports/{run}", summary="The report of a run")
    def report(run: str) -> Report:
        return reports.get(run)

    return router

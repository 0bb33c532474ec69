"""What was trained and how well it answers: `GET /v1/reports`, read from the runs under `KBQA_HOME`.

A run leaves `summary.json`, its results, and `groups/`, what its rollouts said. Reports of another kind
than a training's would be listed here, too: a `Report` says of which kind it is.
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
    """No run of that id has left a report."""


class TrainingSummary(BaseModel):
    """`summary.json` of a run; scores are means over held-out questions, by phase.

    Attributes:
        f1_by_hops: phase → number of hops of a question → score.
        seconds: that the run took.
        policy: the version that came of it.
        ended: why it ended early, if it did.
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
    summary: None while the run is not done, or if its file cannot be read; `problem` says why then.
    written_at: when the newest of it was written.
    steps: of which trajectories are kept.
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
        """Those of runs that have left anything to look at, newest first."""
        if not self._root.is_dir():
            return []
        found = [self._report(path) for path in self._root.iterdir() if _is_report(path)]
        return sorted(found, key=lambda report: (report.written_at, report.id), reverse=True)

    def get(self, run: str) -> Report:
        """The report of a run.

        Raises:
            ReportNotFoundError: there is none.
        """
        return self._report(self._path(run))

    def traces(self, run: str) -> Traces:
        """What a run's rollouts said.

        Raises:
            ReportNotFoundError: there is no such run.
        """
        return Traces(self._path(run) / "groups", most=0)

    def _path(self, run: str) -> Path:
        path = self._root / run
        if not _RUN.match(run) or not _is_report(path):
            raise ReportNotFoundError(f"no report of a run {run!r}; see GET /v1/reports")
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
    """Routes that read files, so they run in threads."""
    router = APIRouter(tags=["reports"])

    @router.get("/v1/reports", summary="Reports of all runs, newest first")
    def all_reports() -> ReportList:
        return ReportList(reports=reports.all())

    @router.get("/v1/reports/{run}", summary="The report of a run")
    def report(run: str) -> Report:
        return reports.get(run)

    return router

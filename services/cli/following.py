"""Follows a training run: with a live display on a terminal, with lines in a log."""

from __future__ import annotations

import time
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from services.cli.api import Api, UnreachableError

_POLL_S = 1.0
_PATIENCE_S = 60.0  # time to wait for a trainer that does not answer
_LINE_S = 10.0  # time between two lines of steps in a log
_OVER = ("stopped", "failed", "done")
# Fields of a step's record that are shown.
_SHOWN = ("loss", "reward", "f1", "entropy", "turns", "invalid_actions", "staleness")


def follow(api: Api, run: str) -> dict[str, Any]:
    """Show a run until it ends; returns its final view.

    Raises:
        ApiError: the trainer does not know the run, or no longer answers.
    """
    display: Display
    console = Console()
    if not console.is_terminal:
        display = Lines()
        return _follow(api, run, display)
    with Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        return _follow(api, run, Bars(progress))


class Display(Protocol):
    """Shows a run."""

    def phase(self, name: str, step: int, of: int) -> None:
        """Show the progress of a phase."""
        ...

    def record(self, record: dict[str, Any]) -> None:
        """Show a record of a step or an evaluation."""
        ...


class Lines:
    """A line for each phase and each evaluation and, now and then, a step with the time left in its phase."""

    def __init__(self) -> None:
        self._phase = ""
        self._step_told_at = 0.0
        self._first: tuple[int, float] | None = None  # the first step seen of the phase, and when

    def phase(self, name: str, step: int, of: int) -> None:
        if name != self._phase:
            self._phase, self._first = name, None
            typer.echo(f"{name} begins" if name != "done" else name)

    def record(self, record: dict[str, Any]) -> None:
        self.phase(record["phase"], record["step"], record["of"])
        if record["kind"] != "step":
            typer.echo(describe(record))
            return
        step, seconds = record["step"], record["seconds"]
        first_step, first_seconds = self._first = self._first or (step, seconds)
        if time.monotonic() - self._step_told_at < _LINE_S:
            return
        self._step_told_at = time.monotonic()
        pace = (seconds - first_seconds) / (step - first_step) if step > first_step else None
        left = "" if pace is None else f", at most {pace * (record['of'] - step):.0f} s left"
        typer.echo(f"{describe(record)}{left}")


class Bars:
    """A progress bar for each phase; evaluations are printed above the bars."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def phase(self, name: str, step: int, of: int) -> None:
        if name == "done":
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, numbers="")
        self._progress.update(self._tasks[name], completed=step, total=of or None)

    def record(self, record: dict[str, Any]) -> None:
        if record["kind"] != "step":
            self._progress.console.print(describe(record), markup=False, highlight=False)
            return
        task = self._tasks.get(record["phase"])
        if task is not None:
            self._progress.update(task, numbers=_numbers(record))


def describe(record: dict[str, Any]) -> str:
    """A metrics record as one line."""
    where = f"{record['phase']} {record['step']}/{record['of']}"
    match record["kind"]:
        case "evaluation":
            what = f"{record['split']} F1 {record['f1']:.3f} ({record['version']})"
        case "step":
            what = _numbers(record)
        case "alarm":
            what = f"alarm: {record['alarm']} is {record['value']:.4g}, its bound {record['bound']:.4g}"
        case "stage":
            what = f"stage {record['name']} begins, since {record['reason']}"
        case "ended" | "refused":
            what = f"{record['kind']}: {record['reason']}"
        case kind:
            what = kind
    return f"{where}: {what}  {record['seconds']:.0f} s"


def _numbers(record: dict[str, Any]) -> str:
    return "  ".join(f"{name} {record[name]:.3f}" for name in _SHOWN if isinstance(record.get(name), float))


def _follow(api: Api, run: str, display: Display) -> dict[str, Any]:
    last = 0
    while True:
        # Read the view before the records, so that the records are complete if the run has ended.
        view = _patiently(api, f"/v1/runs/{run}")
        page = _patiently(api, f"/v1/runs/{run}/metrics?since={last}")
        last = page["last"]
        for record in page["records"]:
            display.record(record)
        display.phase(view["phase"], view["step"], view["of"])
        if view["state"] in _OVER:
            return dict(view)
        time.sleep(_POLL_S)


def _patiently(api: Api, path: str) -> Any:
    """Get a response, waiting for a trainer that may be restarting.

    Raises:
        UnreachableError: it does not answer for `_PATIENCE_S`.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return api.get(path)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)

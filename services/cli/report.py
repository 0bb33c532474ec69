"""`kbqa report`: one HTML file about training runs, to be sent to others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbqa.errors import RunError, RunNotFoundError
from services.cli.options import DEFAULT_HOME, Home
from services.cli.output import require_directories, write_text

if TYPE_CHECKING:
    from kbqa.runs.directory import RunDirectory, Runs


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Training runs, by name, or directories of runs (default: all runs under KBQA_HOME, unless "
            "--evaluation or --findings is given).",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")] = Path(
        "report.html"
    ),
    against: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Compare the others with this run and its seeds (default: the oldest run)."
        ),
    ] = None,
    evaluations: Annotated[
        list[Path] | None,
        typer.Option(
            "--evaluation",
            metavar="FILE",
            help="Add an evaluation, written by `kbqa eval --json`, for instance of a baseline. Repeatable.",
        ),
    ] = None,
    findings: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Add findings: claims tested by trials with and without something. Repeatable.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Write a report of training runs as one HTML file.

    The command needs no running service, and the file can be read offline. It shows results with intervals,
    curves over steps and time, and the questions that only one of two policies answers. Runs of one recipe
    that differ only by their seeds are shown as their mean. Runs on the same test questions are compared
    question by question. Unfinished runs are shown as far as they are.
    """
    from kbqa.reports import build, read_findings
    from kbqa.reports.answers import EvaluationFile
    from services.page.report import page

    require_directories(output)
    chosen, left_out = _chosen(runs or [], home, everything=not (evaluations or findings))
    built = build(
        chosen,
        [EvaluationFile.read(file) for file in evaluations or ()],
        [read_findings(file) for file in findings or ()],
        against=against,
        title=title,
        left_out=left_out,
    )
    write_text(output, page(built))
    for run, why in left_out.items():
        typer.echo(f"left out: {run}: {why}", err=True)
    parts = [
        _count(len(built.runs), "run"),
        _count(sum(len(one.findings) for one in built.findings), "finding"),
    ]
    said = " and ".join(part for part in parts if part)
    typer.echo(f"{output}: {said}")


def _chosen(
    names: Sequence[str], home: Path, *, everything: bool
) -> tuple[list[RunDirectory], dict[str, str]]:
    """The runs to report, and those that cannot be read, each with the reason.

    Args:
        names: of runs under `home`, or paths; if there are none and `everything` is set, all that are there.

    Raises:
        RunNotFoundError: there is no such run, or none at all.
        RunError: a run that was named is damaged.
    """
    from kbqa.runs.directory import RunDirectory, Runs

    root = home / "runs"
    here = Runs(root)
    if names:
        return [_named(name, here) for name in dict.fromkeys(names)], {}
    if not everything:
        return [], {}
    found, left_out = [], {}
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if (path / "run.json").is_file():
            try:
                RunDirectory(path).read()
            except RunError as error:
                left_out[path.name] = str(error)
            else:
                found.append(RunDirectory(path))
    if not found:
        broken = f" ({'; '.join(left_out.values())})" if left_out else ""
        raise RunNotFoundError(
            f"there is no readable training run in {root}{broken}: train one with kbqa train, or choose "
            "another directory with --home"
        )
    return found, left_out


def _named(name: str, runs: Runs) -> RunDirectory:
    from kbqa.runs.directory import RunDirectory

    path = Path(name)
    if (path / "run.json").is_file() and path.name != name:
        return RunDirectory(path)
    try:
        return runs.get(name)
    except RunNotFoundError as error:
        known = ", ".join(run.id for run in runs.all()) or "none"
        raise RunNotFoundError(f"there is no run {name} under {runs.root} (it has: {known})") from error


def _count(number: int, what: str) -> str:
    return "" if not number else f"{number} {what}" if number == 1 else f"{number} {what}s"

"""`kbqa feedback`: what users said of answers, as questions to train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kbqa.errors import DatasetError
from services.cli.options import DEFAULT_HOME, Home
from services.gateway.feedback import feedback_files, feedback_path, questions_of, read_feedback

commands = typer.Typer(help="What users said of answers.", no_args_is_help=True)


@commands.callback()
def feedback() -> None:
    """What users said of answers."""


@commands.command()
def export(
    out: Annotated[Path, typer.Argument(help="File of questions to write, one JSON record a line.")],
    kg: Annotated[str | None, typer.Option("--kg", help="Only questions about this graph.")] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Write the questions whose right answers are known by feedback, to train on or to check a graph by.

    Of a question that was judged several times the last judgement holds.
    """
    files = feedback_files(home)
    if not files:
        raise DatasetError(
            f"{feedback_path(home)}: no feedback yet; the gateway takes it by POST /v1/feedback"
        )
    questions = questions_of(read_feedback(*files), kg)
    if not questions:
        raise DatasetError(f"{', '.join(map(str, files))}: no feedback says which answers are right")
    lines = [json.dumps(question, ensure_ascii=False) + "\n" for question in questions]
    out.write_text("".join(lines), encoding="utf-8")
    typer.echo(f"wrote {len(questions)} questions to {out}")

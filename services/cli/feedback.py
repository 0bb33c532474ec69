"""`kbqa feedback`: exports users' feedback on answers as questions to train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kbqa.errors import DatasetError
from kbqa.feedback import feedback_files, feedback_path, questions_of, read_feedback
from services.cli.options import DEFAULT_HOME, Home

commands = typer.Typer(help="Export users' feedback on answers.", no_args_is_help=True)


@commands.callback()
def feedback() -> None:
    """Export users' feedback on answers."""


@commands.command()
def export(
    out: Annotated[Path, typer.Argument(help="Output file, one JSON record per line.")],
    kg: Annotated[str | None, typer.Option("--kg", help="Export only questions about this graph.")] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Export the questions whose correct answers are known from feedback, for training or checks.

    If a question was judged several times, the last judgement counts.
    """
    files = feedback_files(home)
    if not files:
        raise DatasetError(
            f"{feedback_path(home)}: there is no feedback yet; users send it with POST /v1/feedback"
        )
    questions = questions_of(read_feedback(*files), kg)
    if not questions:
        raise DatasetError(f"{', '.join(map(str, files))}: no feedback says which answers are correct")
    lines = [json.dumps(question, ensure_ascii=False) + "\n" for question in questions]
    out.write_text("".join(lines), encoding="utf-8")
    typer.echo(f"wrote {len(questions)} questions to {out}")

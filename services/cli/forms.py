"""`kbqa forms`: checks logical forms of data sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from kbqa.logical_forms.checking import CheckStage, check_forms, read_records
from services.cli.options import AsJson

commands = typer.Typer(help="Check logical forms.", no_args_is_help=True)

_SAYS = {
    CheckStage.PARSED: "parse",
    CheckStage.ROUND_TRIPPED: "read back unchanged",
    CheckStage.COMPILED: "compile to SPARQL",
    CheckStage.ACTIONS: "become actions",
}


@commands.callback()
def forms() -> None:
    """Check logical forms."""


@commands.command()
def check(
    file: Annotated[Path, typer.Argument(help="GrailQA records as JSON, each with an s_expression.")],
    as_json: AsJson = False,
) -> None:
    """Count the forms that parse, survive a round trip, compile to SPARQL and become actions.

    Exit code 1 unless all pass the first three; some forms have no actions.
    """
    report = check_forms(read_records(file))
    if as_json:
        typer.echo(json.dumps(asdict(report)))
    else:
        typer.echo(f"{report.records} records")
        for stage, says in _SAYS.items():
            typer.echo(f"{getattr(report, stage):>7} {says}")
        for failure in report.failures:
            name = f"record {failure.record}" + (f" (qid {failure.id})" if failure.id else "")
            typer.echo(f"{name} does not {_SAYS[failure.stage]}: {failure.reason}")
    if not report.ok:
        raise typer.Exit(1)

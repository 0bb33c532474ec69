"""`kbqa average`: averages evaluations of several data sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from services.cli.options import AsJson


def average(
    files: Annotated[list[Path], typer.Argument(help="Files written by kbqa eval --json, one per data set.")],
    as_json: AsJson = False,
) -> None:
    """Average evaluations of several data sets, weighted by their numbers of questions."""
    from kbqa.evaluation import METRICS
    from kbqa.evaluation.averages import average as weighted
    from kbqa.evaluation.averages import read_measured

    evaluations = [read_measured(file) for file in files]
    mean = weighted(evaluations)
    if as_json:
        typer.echo(json.dumps(asdict(mean)))
        return
    names = [name for name in mean.metrics if METRICS[name].is_share]
    table = Table("data set", "questions", *(METRICS[name].title for name in names), box=None)
    for one in (*evaluations, mean):
        table.add_row(one.dataset, f"{one.questions:,}", *(f"{one.metrics[name]:.3f}" for name in names))
    Console().print(table)

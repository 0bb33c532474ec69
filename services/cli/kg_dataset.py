"""`kbqa kg load-dataset`."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.options import DEFAULT_HOME, Home
from services.cli.train import load_graph


def load_dataset_graph(
    dataset: Annotated[
        str, typer.Argument(help="Name of the data set; world is generated, others are read from KBQA_DATA.")
    ],
    seed: Annotated[int, typer.Option(min=0, help="Random seed of a generated data set.")] = 1,
    home: Home = DEFAULT_HOME,
) -> None:
    """Load the graph of a data set, unless it is already loaded."""
    load_graph(home, dataset, seed)
    typer.echo(f"the graph of {dataset} is loaded")

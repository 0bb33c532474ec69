"""`kbqa kg load-dataset`."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.graphs import load_graphs
from services.cli.options import DEFAULT_HOME, Home


def load_dataset_graph(
    dataset: Annotated[
        str,
        typer.Argument(help="Name of the data set. Those that are not generated are read from KBQA_DATA."),
    ],
    seed: Annotated[int, typer.Option(min=0, help="Random seed of a generated data set.")] = 1,
    home: Home = DEFAULT_HOME,
) -> None:
    """Load the graphs of a data set, unless they are already loaded."""
    graphs = load_graphs(home, dataset, seed)
    if len(graphs) == 1:
        typer.echo(f"the graph of {dataset} is loaded")
    else:
        typer.echo(f"the {len(graphs)} graphs of {dataset} are loaded")

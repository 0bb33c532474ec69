"""`kbqa kg`: the graphs in KBQA_HOME."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading import GraphFormat
from services.cli.options import DEFAULT_HOME, AsJson, Home

commands = typer.Typer(help="Load and list knowledge graphs.", no_args_is_help=True)


@commands.command()
def load(
    name: Annotated[str, typer.Argument(help="What to call the graph.")],
    file: Annotated[
        Path, typer.Argument(help="Triples: tab- or |-separated, N-Triples or Turtle; gzipped or not.")
    ],
    graph_format: Annotated[
        GraphFormat | None,
        typer.Option("--format", help="What the file is written in, if it is not recognised."),
    ] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Load a file as a graph, in place of the one that had its name. Running services see it at once."""
    catalog = GraphCatalog(home)
    try:
        graph = catalog.load(name, file, format=graph_format)
    finally:
        catalog.close()
    typer.echo(
        f"loaded {graph.name}: {graph.triples} triples, {graph.entities} entities, version {graph.version}"
    )


@commands.command("list")
def list_graphs(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List the graphs that are loaded."""
    catalog = GraphCatalog(home)
    graphs = catalog.list()
    catalog.close()
    if as_json:
        typer.echo(json.dumps([asdict(graph) for graph in graphs]))
        return
    if not graphs:
        typer.echo(f"no graph is loaded in {home}; load one with: kbqa kg load NAME FILE")
        return
    table = Table("graph", "triples", "entities", "version", box=None)
    for graph in graphs:
        table.add_row(graph.name, str(graph.triples), str(graph.entities), graph.version)
    Console().print(table)

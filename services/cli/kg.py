"""`kbqa kg`: the graphs in KBQA_HOME."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table

from kbqa.kg.catalog import GraphCatalog
from services.cli.check_queries import check_queries
from services.cli.kg_attach import attach
from services.cli.kg_dataset import load_dataset_graph
from services.cli.kg_load import load
from services.cli.kg_questions import check, subgraphs
from services.cli.kg_update import compact, update
from services.cli.kg_view import view
from services.cli.options import DEFAULT_HOME, AsJson, Home

commands = typer.Typer(help="Load, list and check knowledge graphs.", no_args_is_help=True)


commands.command()(load)
commands.command("load-dataset")(load_dataset_graph)
commands.command()(attach)
commands.command()(subgraphs)
commands.command()(view)
commands.command()(update)
commands.command()(compact)
commands.command()(check)
commands.command("check-queries")(check_queries)


@commands.command("list")
def list_graphs(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List the graphs that are loaded."""
    catalog = GraphCatalog(home)
    graphs = [(graph, catalog.subgraphs(graph.name)) for graph in catalog.list()]
    catalog.close()
    if as_json:
        listed = [
            asdict(graph) | {"subgraphs": [asdict(s) | {"leaking": s.leaking} for s in sets]}
            for graph, sets in graphs
        ]
        typer.echo(json.dumps(listed))
        return
    if not graphs:
        typer.echo(f"no graph is loaded in {home}; load one with: kbqa kg load NAME FILE")
        return
    table = Table("graph", "triples", "entities", "version", "subgraphs", box=None)
    for graph, sets in graphs:
        described = "; ".join(
            f"{s.questions} of {s.source}, {s.seed}{' (leaking)' if s.leaking else ''}" for s in sets
        )
        counts = ("not counted" if count is None else str(count) for count in (graph.triples, graph.entities))
        table.add_row(graph.name, *counts, graph.version, described)
    Console().print(table)

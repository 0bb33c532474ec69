"""`kbqa kg view`: a part of a graph, for keys that may not ask the whole."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.views import ViewLimits
from services.cli.options import DEFAULT_HOME, Home


def view(
    graph: Annotated[str, typer.Argument(help="The graph.")],
    name: Annotated[str, typer.Argument(help="Name of the view, which becomes the graph GRAPH@NAME.")],
    relations: Annotated[
        list[str] | None,
        typer.Option("--relation", help="Only facts with this relation, by id or label. Repeatable."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only entities of this type, and their values. Repeatable."),
    ] = None,
    subgraphs: Annotated[
        list[str] | None,
        typer.Option("--subgraph", help="Only facts in this question's subgraph. Repeatable."),
    ] = None,
    type_relations: Annotated[
        list[str] | None,
        typer.Option("--type-relation", help="Relation that states the type of an entity. Repeatable."),
    ] = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Make a view of a loaded graph: a graph of its own that holds only the facts that satisfy all options.

    Restrict keys to it with kbqa keys create OWNER --graph GRAPH@NAME. Whenever the graph is loaded again,
    its views are made again.
    """
    limits = ViewLimits(*map(tuple, (relations or (), types or (), subgraphs or (), type_relations or ())))
    with closing(GraphCatalog(home)) as catalog:
        made = catalog.make_view(graph, name, limits)
    typer.echo(f"made {made.name}: {made.triples} triples, {made.entities} entities, version {made.version}")

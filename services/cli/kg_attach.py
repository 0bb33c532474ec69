"""`kbqa kg attach`: a graph behind a SPARQL endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from kbqa.errors import ConfigurationError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.endpoint.record import FREEBASE_NAME, RDFS_LABEL, AuthKind, Endpoint, ServerKind
from services.cli.options import DEFAULT_HOME, Home


def attach(
    name: Annotated[str, typer.Argument(help="What to call the graph.")],
    url: Annotated[str, typer.Argument(help="Of the endpoint, for instance http://localhost:8890/sparql.")],
    default_graph: Annotated[
        list[str] | None,
        typer.Option(metavar="IRI", help="Graph at the endpoint to ask; its default graph if none is named."),
    ] = None,
    server: Annotated[
        ServerKind, typer.Option(help="Whose server it is; Virtuoso and Fuseki are recognised.")
    ] = ServerKind.OTHER,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="IRI", help="Property that holds names; rdfs:label and Freebase's by default."),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Language of names, the preferred first; en by default."),
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.001, help="Seconds of a look-up.")] = 3.0,
    connections: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 16,
    check_syntax: Annotated[
        bool, typer.Option(help="Parse queries before they are sent; not for a server's own extensions.")
    ] = True,
    auth: Annotated[AuthKind | None, typer.Option(help="How to prove who we are.")] = None,
    user: Annotated[str, typer.Option(help="Of basic and digest authentication.")] = "",
    secret_env: Annotated[
        str,
        typer.Option(metavar="VARIABLE", help="Environment variable that holds the password or token."),
    ] = "",
    count: Annotated[float, typer.Option(min=0.001, help="Seconds that its triples may be counted.")] = 10.0,
    home: Home = DEFAULT_HOME,
) -> None:
    """Serve what a SPARQL endpoint holds as a graph, in place of the one that had its name.

    Attach it again when its data has changed: until then, answers may come from caches.
    """
    if secret_env.startswith("KBQA_"):
        raise ConfigurationError(f"--secret-env {secret_env}: names with KBQA_ are settings; choose another")
    endpoint = Endpoint(
        url,
        tuple(default_graph or ()),
        server,
        labels=tuple(label or (RDFS_LABEL, FREEBASE_NAME)),
        languages=tuple(language or ("en",)),
        deadline_s=deadline,
        connections=connections,
        check_syntax=check_syntax,
        auth=auth,
        user=user,
        secret_variable=secret_env,
    )
    catalog = GraphCatalog(home)
    try:
        graph = catalog.attach(name, endpoint, count_s=count)
    finally:
        catalog.close()
    counted = "not counted in time" if graph.triples is None else f"{graph.triples} triples"
    typer.echo(f"attached {graph.name}: {counted}, version {graph.version}")

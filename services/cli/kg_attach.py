"""`kbqa kg attach`: a graph behind a SPARQL endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from kbqa.errors import ConfigurationError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.endpoint.record import FREEBASE_NAME, RDFS_LABEL, AuthKind, Endpoint, ServerKind
from services.cli.options import DEFAULT_HOME, Home


def attach(
    name: Annotated[str, typer.Argument(help="Name of the graph.")],
    url: Annotated[
        str, typer.Argument(help="URL of the endpoint, for example http://localhost:8890/sparql.")
    ],
    default_graph: Annotated[
        list[str] | None,
        typer.Option(metavar="IRI", help="Named graph to query (default: the endpoint's default graph)."),
    ] = None,
    server: Annotated[
        ServerKind, typer.Option(help="Server software; Virtuoso and Fuseki are detected.")
    ] = ServerKind.OTHER,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="IRI", help="Property that holds labels (default: rdfs:label and Freebase's)."),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TAG", help="Language of labels, most preferred first (default: en). Repeatable."
        ),
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.001, help="Timeout of a look-up, in seconds.")] = 3.0,
    connections: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent requests.")] = 16,
    check_syntax: Annotated[
        bool,
        typer.Option(
            help="Check the syntax of queries before sending them; disable this for server-specific syntax."
        ),
    ] = True,
    auth: Annotated[AuthKind | None, typer.Option(help="Authentication scheme.")] = None,
    user: Annotated[str, typer.Option(help="User name for basic or digest authentication.")] = "",
    secret_env: Annotated[
        str,
        typer.Option(metavar="VARIABLE", help="Environment variable that holds the password or token."),
    ] = "",
    count: Annotated[float, typer.Option(min=0.001, help="Timeout for counting triples, in seconds.")] = 10.0,
    home: Home = DEFAULT_HOME,
) -> None:
    """Serve a SPARQL endpoint as a graph, replacing any graph of that name.

    Attach it again after its data has changed; until then, answers may come from caches.
    """
    if secret_env.startswith("KBQA_"):
        raise ConfigurationError(
            f"--secret-env {secret_env}: names that begin with KBQA_ are reserved for settings; choose "
            "another one"
        )
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

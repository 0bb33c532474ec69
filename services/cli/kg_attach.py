"""`kbqa kg attach`: a graph behind a SPARQL endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from kbqa.errors import ConfigurationError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.endpoint.record import LABEL_PROPERTIES, AuthKind, Endpoint, ServerKind
from kbqa.kg.languages import DEFAULT_LANGUAGES
from services.cli.options import (
    DEFAULT_HOME,
    GivenNamespaces,
    Home,
    LabelLanguages,
    RecogniseNamespaces,
    namespace_options,
)


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
        typer.Option(
            metavar="IRI",
            help="Property that holds labels (default: rdfs:label, Freebase's, skos:prefLabel, schema:name "
            "and foaf:name, as far as they occur). Repeatable.",
        ),
    ] = None,
    language: LabelLanguages = None,
    namespace: GivenNamespaces = None,
    recognise_namespaces: RecogniseNamespaces = True,
    deadline: Annotated[float, typer.Option(min=0.001, help="Timeout of a look-up, in seconds.")] = 3.0,
    query_deadline: Annotated[
        float | None,
        typer.Option(min=0.001, help="Timeout of an agent's query, in seconds (default: that of kg_server)."),
    ] = None,
    schema_deadline: Annotated[
        float, typer.Option(min=0.001, help="Timeout for listing all relations or types, in seconds.")
    ] = 60.0,
    hub_relations: Annotated[
        int,
        typer.Option(
            min=1,
            help="Relations of a node, in each direction, that two-hop patterns follow; each costs two "
            "requests. Those closest to the question are chosen.",
        ),
    ] = 16,
    hub_neighbours: Annotated[
        int,
        typer.Option(min=1, help="For each of these relations: neighbours whose relations are read."),
    ] = 50,
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
        labels=tuple(label or LABEL_PROPERTIES),
        languages=tuple(language or DEFAULT_LANGUAGES),
        deadline_s=deadline,
        schema_deadline_s=schema_deadline,
        query_deadline_s=query_deadline,
        hub_relations=hub_relations,
        hub_neighbours=hub_neighbours,
        connections=connections,
        check_syntax=check_syntax,
        auth=auth,
        user=user,
        secret_variable=secret_env,
    )
    catalog = GraphCatalog(home)
    try:
        options = namespace_options(namespace, recognise_namespaces)
        graph = catalog.attach(name, endpoint, naming=options, count_s=count)
    finally:
        catalog.close()
    counted = "not counted in time" if graph.triples is None else f"{graph.triples} triples"
    typer.echo(f"attached {graph.name}: {counted}, version {graph.version}")

"""What an endpoint shows about itself when it is attached: its server, its labels, its namespaces."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kbqa.errors import ConfigurationError, QueryError
from kbqa.kg.endpoint.client import EndpointClient
from kbqa.kg.endpoint.record import (
    LABEL_PROPERTIES,
    RDFS_LABEL,
    TYPE_PROPERTIES,
    Endpoint,
    ServerKind,
)
from kbqa.kg.endpoint.results import ROWS, read_result, readable
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.namespaces import Namespaces
from kbqa.kg.sparql.guard import ResultFormat
from kbqa.kg.sparql.prefixes import PREFIXES

_SAMPLE = "SELECT ?s ?p ?o WHERE { ?s ?p ?o } LIMIT 1000"
# The first triples of a large graph may be few things; these relations show of which kind it is.
_TELLING = (
    *TYPE_PROPERTIES,
    f"{PREFIXES['dbo']}wikiPageID",
    f"{PREFIXES['dbo']}abstract",
)


def find_server(endpoint: Endpoint) -> ServerKind:
    """Detect the kind of server at an endpoint.

    Raises:
        GraphUnavailableError: nothing answers, or the server is not a SPARQL endpoint.
        ConfigurationError: the graph holds no triples.
    """
    client = EndpointClient(endpoint)
    try:
        answer = client.ask("ASK { ?s ?p ?o }", ROWS, deadline_s=endpoint.deadline_s, max_bytes=1 << 16)
        with readable(endpoint.url):
            found = read_result(answer, "ASK", ResultFormat.JSON, max_rows=1)
    finally:
        client.close()
    if b"true" not in found.body:
        graphs = " and ".join(endpoint.default_graphs) or "its default graph (name another)"
        raise ConfigurationError(f"{endpoint.url} holds no triples in {graphs}")
    return ServerKind.of(answer.server)


def find_labels(store: EndpointStore, namespaces: Namespaces) -> tuple[str, ...]:
    """The usual properties for labels that the graph has, and those called `name` in its namespaces."""
    called_name = (f"{beginning}name" for _, beginning in namespaces.declared)
    usual = tuple(dict.fromkeys((*LABEL_PROPERTIES, *called_name)))
    try:
        return tuple(iri for iri in usual if iri in store.items(usual)) or (RDFS_LABEL,)
    except QueryError:
        return LABEL_PROPERTIES


def some_iris(store: EndpointStore, *, deadline_s: float) -> Iterator[str]:
    """Some IRIs of the graph: a sample of its first triples, and well-known relations that it has."""
    try:
        yield from store.items(_TELLING)
        sample = store.query(_SAMPLE, deadline_s=deadline_s)
    except QueryError:
        return
    for row in json.loads(sample.body)["results"]["bindings"]:
        yield from (term["value"] for term in row.values() if term["type"] == "uri")

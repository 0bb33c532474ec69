"""Graphs of a Turtle text, in this process and behind a SPARQL endpoint; an exit stack closes them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.endpoint.record import Endpoint
from kbqa.kg.endpoint.store import EndpointStore
from tests.sparql_servers import SparqlServer


def loaded(opened: ExitStack, home: Path, name: str, turtle: str) -> GraphCatalog:
    """A catalog under `home` with one graph."""
    (home / "graph.ttl").write_text(turtle)
    catalog = GraphCatalog(home)
    opened.callback(catalog.close)
    catalog.load(name, home / "graph.ttl")
    return catalog


def served(opened: ExitStack, turtle: str, **options: Any) -> tuple[EndpointStore, SparqlServer]:
    """A store over a server of its own; `options` are fields of `Endpoint`."""
    server = SparqlServer(turtle)
    opened.callback(server.stop)
    return attached(opened, Endpoint(server.url, **{"deadline_s": 60, **options})), server


def attached(opened: ExitStack, endpoint: Endpoint) -> EndpointStore:
    store = EndpointStore(endpoint, version="v1")
    opened.callback(store.close)
    return store

"""Graphs at endpoints are attached, listed and replaced like loaded ones."""

from __future__ import annotations

import time

import pytest

from kbqa.errors import (
    ConfigurationError,
    GraphUnavailableError,
)
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.endpoint.record import Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.tools import LocalGraphTools
from tests.sparql_servers import free_port
from tests.unit.kg.endpoint.starred import EX, STARRED


@pytest.fixture
def catalog(tmp_path, queries):
    return GraphCatalog(tmp_path, queries=queries, recheck_s=0)


def test_an_attached_graph_is_listed_and_opened_like_a_loaded_one(server, catalog):
    info = catalog.attach("films", Endpoint(server.url))
    assert (info.name, info.triples, info.entities) == ("films", 303, 3)
    assert catalog.list() == [info]
    store = catalog.get("films")
    assert store.version == info.version
    assert store.is_remote
    assert store.resolve_entity("Tom Hanks") == (f"{EX}hanks",)
    [found] = LocalGraphTools(catalog).execute("films", [STARRED])
    assert [item.label for item in found.items] == ["Tom Hanks"]
    store.close()


def test_attaching_again_makes_a_new_version(server, catalog):
    first = catalog.attach("films", Endpoint(server.url))
    store = catalog.get("films")
    second = catalog.attach("films", Endpoint(server.url))
    assert second.version != first.version
    assert catalog.get("films").version == second.version
    assert store.resolve_entity("Big") == (f"{EX}big",)  # requests that hold it go on
    store.close()
    catalog.get("films").close()


def test_a_loaded_graph_and_an_attached_one_replace_each_other(server, catalog, tmp_path):
    (tmp_path / "films.txt").write_text("Big\tstarred\tTom Hanks\n")
    catalog.load("films", tmp_path / "films.txt")
    catalog.attach("films", Endpoint(server.url))
    attached = catalog.get("films")
    assert isinstance(attached, EndpointStore)
    catalog.load("films", tmp_path / "films.txt")
    assert isinstance(catalog.get("films"), OxigraphStore)
    attached.close()


def test_what_cannot_be_attached_changes_nothing(server, catalog):
    before = catalog.attach("films", Endpoint(server.url))
    with pytest.raises(GraphUnavailableError):
        catalog.attach("films", Endpoint(f"http://127.0.0.1:{free_port()}/", deadline_s=3))
    server.answer_with(lambda request: request.reply(200, b"<html>hello", "text/html"))
    with pytest.raises(GraphUnavailableError, match="neither true nor false"):
        catalog.attach("films", Endpoint(server.url))
    server.answer_with(lambda request: request.reply(200, b'{"head":{},"boolean":false}'))
    with pytest.raises(ConfigurationError, match="holds no triples"):
        catalog.attach("films", Endpoint(server.url))
    with pytest.raises(ConfigurationError, match="cannot name"):
        catalog.attach("../films", Endpoint(server.url))
    assert catalog.list() == [before]


def test_a_count_that_takes_too_long_is_left_out(server, catalog):
    def slow_to_count(request):
        if "COUNT" in request.form["query"]:
            time.sleep(0.5)
        server.execute(request)

    server.answer_with(slow_to_count)
    info = catalog.attach("films", Endpoint(server.url), count_s=0.1)
    assert (info.triples, info.entities) == (None, None)


def test_a_virtuoso_is_recognised(server, catalog):
    def like_virtuoso(request):
        request.server_version = "Virtuoso/07.20.3229 (Linux)"
        server.execute(request)

    server.answer_with(like_virtuoso)
    catalog.attach("films", Endpoint(server.url))
    store = catalog.get("films")
    server.requests.clear()
    store.resolve_entity("Big")
    assert server.requests
    assert all(int(request["timeout"]) > 1000 for request in server.requests)
    assert ServerKind.of("Apache Jena Fuseki (5.1.0)") is ServerKind.FUSEKI
    store.close()

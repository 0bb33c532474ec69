"""A kg_server over a small graph."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from kbqa.kg.catalog import GraphCatalog
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings

TRIPLES = [
    *[("Big", "starred", name) for name in ("Tom Hanks", "Elizabeth Perkins")],
    ("Big", "released", "1988"),
    ("Philadelphia", "starred", "Tom Hanks"),
    ('Müller, "K." & Söhne/(GmbH) 100%', "located in", "Köln 😀"),
    *[("hub", "links", f"{n:04}") for n in range(1500)],
]


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A KBQA_HOME that holds the graph `films`."""
    path = tmp_path_factory.mktemp("kg") / "films.txt"
    path.write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    home = tmp_path_factory.mktemp("home")
    catalog = GraphCatalog(home)
    catalog.load("films", path)
    catalog.close()
    return home


@pytest.fixture
def client(home):
    """A client of a server with the given settings, within this process."""
    clients = []

    def make(**settings):
        settings = {"home": home, "redis_url": None, **settings}
        client = TestClient(create_app(KgServerSettings.load(**settings)), "http://127.0.0.1")
        clients.append(client.__enter__())
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)

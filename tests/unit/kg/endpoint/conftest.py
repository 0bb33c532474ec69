"""An endpoint, and graphs there."""

from __future__ import annotations

import pytest

from kbqa.kg.endpoint.record import Endpoint
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.sparql.pool import QueryPool
from tests.sparql_servers import SparqlServer
from tests.unit.kg.endpoint.starred import TURTLE


@pytest.fixture
def server():
    server = SparqlServer(TURTLE)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def queries():
    pool = QueryPool(size=1)
    yield pool
    pool.close()


@pytest.fixture
def connect(queries):
    stores = []

    def make(url: str, *, max_rows=10_000, max_bytes=1 << 20, **fields) -> EndpointStore:
        endpoint = Endpoint(url, **{"deadline_s": 10, **fields})
        stores.append(
            EndpointStore(endpoint, version="v", queries=queries, max_rows=max_rows, max_bytes=max_bytes)
        )
        return stores[-1]

    yield make
    for store in stores:
        store.close()

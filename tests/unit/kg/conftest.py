"""A real Virtuoso, for the tests that are marked `integration`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sparql_servers import Virtuoso


@pytest.fixture(scope="session")
def virtuoso(tmp_path_factory) -> Iterator[Virtuoso]:
    """A server that lives as long as the test session; load what a test needs as a graph of its own."""
    if missing := Virtuoso.missing():
        pytest.skip(missing)
    server = Virtuoso(tmp_path_factory.mktemp("virtuoso"))
    yield server
    server.kill()

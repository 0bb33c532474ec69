"""`expand` over films, embedded and at an endpoint."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.subgraphs import Seed, SubgraphWriter
from tests.opened_graphs import loaded, served
from tests.unit.kg.retrieval.expanding import EX, TURTLE, expanding


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    with ExitStack() as opened:
        catalog = loaded(opened, tmp_path_factory.mktemp("home"), "films", TURTLE)

        def write(store, directory):
            with SubgraphWriter(store, directory, source="asked", seed=Seed.TOPICS, hops=1) as writer:
                writer.add_search("about heat", [f"{EX}heat"])
                return writer.finish()

        catalog.add_subgraphs("films", write)
        remote, _ = served(opened, TURTLE)
        yield FixedGraphs({"embedded": catalog.get("films"), "endpoint": remote})


@pytest.fixture(params=["embedded", "endpoint"])
def expand(graphs, request):
    return expanding(graphs, request.param)


@pytest.fixture
def expand_here(graphs):
    return expanding(graphs, "embedded")

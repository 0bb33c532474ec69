"""A run needs its graph, and says what to do when it is not there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kbqa.errors import RunError
from kbqa.kg.client import HttpGraphTools
from kbqa.runs.context import Context, Stopped
from kbqa.runs.directory import RunRecord, SplitLimits


@pytest.fixture
def make_context():
    opened = []

    def make(url: str, stop: threading.Event | None = None) -> Context:
        record = RunRecord(
            id="r1", recipe={}, dataset="world", limits=SplitLimits(), seed=1, created_at="2026-01-01"
        )
        unused = dict.fromkeys(("directory", "recipe", "store", "journal", "rollouts"))
        opened.append(HttpGraphTools(url))
        return Context(
            **unused,
            record=record,
            home=Path("var"),
            graph_wait_s=0.2,
            tools=opened[-1],
            stop=stop or threading.Event(),
        )

    yield make
    for tools in opened:
        tools.close()


def test_a_loaded_graph_has_a_version(make_context, graph_server) -> None:
    context = make_context(graph_server.url)
    assert context.kg_versions(["world", "world"]) == {"world": context.tools.graphs()[0].version}


def test_a_graph_that_is_not_loaded_is_an_error_that_says_how_to_load_it(make_context, graph_server) -> None:
    with pytest.raises(RunError, match="kbqa kg load mars FILE"):
        make_context(graph_server.url).kg_versions(["world", "mars"])


def test_kg_server_is_waited_for_but_not_for_ever(make_context) -> None:
    with pytest.raises(RunError, match="does not answer"):
        make_context("http://127.0.0.1:1").kg_versions(["world"])


def test_stopping_ends_the_wait(make_context) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        make_context("http://127.0.0.1:1", stop).kg_versions(["world"])

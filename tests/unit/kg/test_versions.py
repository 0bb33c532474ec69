"""Versions of graphs are asked for once a while, and at once for a graph that is not known."""

from __future__ import annotations

import pytest

from kbqa.errors import GraphNotFoundError
from kbqa.kg.store import GraphInfo
from kbqa.kg.versions import GraphVersions


class Tools:
    """Graph tools that count how often they are asked what there is."""

    def __init__(self) -> None:
        self.graphs_loaded, self.asked = {"films": "v1"}, 0

    def graphs(self):
        self.asked += 1
        return [GraphInfo(name, version, 1, 1) for name, version in self.graphs_loaded.items()]


def test_an_answer_is_believed_for_a_while() -> None:
    tools = Tools()
    versions = GraphVersions(tools, age_s=1000)
    assert versions.fresh("films") is None
    assert [versions.of("films"), versions.of("films"), versions.fresh("films")] == ["v1"] * 3
    assert tools.asked == 1


def test_without_an_age_it_asks_each_time() -> None:
    tools = Tools()
    versions = GraphVersions(tools)
    assert versions.of("films") == "v1"
    tools.graphs_loaded["films"] = "v2"
    assert (versions.fresh("films"), versions.of("films")) == (None, "v2")


def test_a_graph_that_is_not_known_is_asked_for_and_named_if_it_is_none() -> None:
    tools = Tools()
    versions = GraphVersions(tools, age_s=1000)
    versions.of("films")
    tools.graphs_loaded["world"] = "w1"
    assert versions.of("world") == "w1"
    with pytest.raises(GraphNotFoundError, match=r'no graph named "mars" \(loaded graphs: films, world\)'):
        versions.of("mars")

"""The terms of a recipe go from its actions to the query, whether the graph is in this process or served."""

from __future__ import annotations

import logging

import pytest

from kbqa.errors import ConfigurationError
from kbqa.kg.actions import Action, ErrorKind, Failure, Success
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.ranking.encoders import NgramEncoder, is_named
from kbqa.kg.terms import GraphTerms
from kbqa.kg.tools import LocalGraphTools
from kbqa.recipes import load_recipe

TRIPLES = [("Ada", "parent", "Byron"), *((f"n{i}", "next", f"n{i + 1}") for i in range(300))]
LOOK_UP = Action("get_tail_relations", {"entity": "Ada"})
ASK = Action("execute_sparql", {"query": "ASK { ?a ?b ?c }"})
ENDLESS = Action(
    "execute_sparql",
    {"query": "SELECT (COUNT(*) AS ?n) WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n1 ?o }"},
)
MEANT = Action("find_relation", {"entity": "Ada", "relation": "parents"})


class Recording:
    """Tools that keep what they were asked."""

    def __init__(self, tools) -> None:
        self.tools, self.asked = tools, []

    def execute(self, kg, actions, *, graph=None):
        self.asked.extend(actions)
        return self.tools.execute(kg, actions, graph=graph)


@pytest.fixture(scope="module")
def graphs():
    return FixedGraphs({"g": OxigraphStore.from_triples(TRIPLES)})


def test_terms_go_along_with_actions_that_query_and_not_with_look_ups(graphs):
    recording = Recording(LocalGraphTools(graphs, longest_s=60))
    results = GraphTerms(30, "ngram").over(recording).execute("g", [LOOK_UP, ASK, MEANT, Action("no such")])
    assert [type(result) for result in results] == [Success, Success, Success, Failure]
    added = [{k: v for k, v in a.arguments.items() if k in ("timeout_s", "encoder")} for a in recording.asked]
    assert added == [{}, {"timeout_s": 30, "encoder": "ngram"}, {"timeout_s": 30, "encoder": "ngram"}, {}]


def test_without_terms_nothing_changes(graphs):
    tools = LocalGraphTools(graphs)
    assert GraphTerms().over(tools) is tools
    assert load_recipe("kg-r1").graph.terms() == GraphTerms()


@pytest.mark.parametrize(("longest_s", "allowed_s"), [(None, 2.0), (1.0, 2.0), (3.0, 3.0)])
def test_a_query_may_run_as_long_as_the_recipe_asks_and_the_server_allows(
    graphs, longest_s, allowed_s, caplog
):
    tools = LocalGraphTools(graphs, deadline_s=2.0, longest_s=longest_s)
    with caplog.at_level(logging.WARNING, logger="kbqa.kg.terms"):
        [result] = GraphTerms(query_timeout_s=50).over(tools).execute("g", [ENDLESS])
    assert (result.kind, result.details["timeout_s"]) == (ErrorKind.QUERY_TIMEOUT, allowed_s)
    assert f"{allowed_s:g} s" in result.message
    [record] = caplog.records
    assert "KBQA_KG_SERVER_QUERY_DEADLINE_MAX_S" in record.message
    assert (record.allowed_s, record.asked_s) == (allowed_s, 50)


def test_another_encoder_than_the_recipes_is_an_error_that_says_what_to_do(graphs):
    terms = load_recipe("isp-kgr").graph.terms()
    assert terms == GraphTerms(300, "Qwen/Qwen3-Embedding-0.6B")
    with pytest.raises(ConfigurationError, match=r"ngram-.* not by Qwen/Qwen3-Embedding-0.6B: .*_ENCODER"):
        terms.over(LocalGraphTools(graphs)).execute("g", [MEANT])


class _Named(NgramEncoder):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@pytest.mark.parametrize(
    ("name", "wanted", "fits"),
    [
        ("Qwen3-Embedding-0.6B-0a1b-lasttoken-512", "Qwen/Qwen3-Embedding-0.6B", True),
        ("http://h:8000/v1#Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Embedding-0.6B", True),
        ("Qwen3-Embedding-8B-0a1b-lasttoken-512", "Qwen/Qwen3-Embedding-0.6B", False),
        ("ngram-3-4096", "ngram", True),
    ],
)
def test_an_encoder_is_known_by_the_last_part_of_its_name(name, wanted, fits):
    assert is_named(_Named(name), wanted) is fits

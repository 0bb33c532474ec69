"""One contract for graph tools, in this process and over HTTP."""

from __future__ import annotations

import pytest

from kbqa.errors import GraphNotFoundError
from kbqa.kg.actions import Action, ErrorCode, Failure, Item, Mention, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.client import HttpGraphTools
from kbqa.kg.tools import LocalGraphTools
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings


@pytest.fixture(scope="module", params=["local", "http"])
def tools(request, home):
    if request.param == "local":
        catalog = GraphCatalog(home)
        yield LocalGraphTools(catalog)
        catalog.close()
    else:
        with background(create_app(KgServerSettings.load(home=home))) as url, HttpGraphTools(url) as tools:
            yield tools


def test_items_and_totals(tools):
    [result] = tools.execute("films", [Action("get_tail_entities", {"entity": "Big", "relation": "starred"})])
    assert isinstance(result, Success)
    assert result.items == (Item("Elizabeth Perkins", "Elizabeth Perkins"), Item("Tom Hanks", "Tom Hanks"))
    assert (result.total, result.truncated, result.cached) == (2, False, False)


def test_a_path_comes_with_what_can_be_followed_next_and_the_ways_to_its_ends(tools):
    other_films = {"entity": "Big", "path": ["starred", "^starred"], "question": "which?"}
    dead_end = {"entity": "Big", "path": ["starred", "released"]}
    hub = {"entity": "hub", "path": ["links"], "relations": 5}
    first, dead, whole = tools.execute(
        "films", [Action("follow_path", arguments) for arguments in (other_films, dead_end, hub)]
    )
    assert first.items == (Item("Philadelphia", "Philadelphia"),)
    assert first.details == {
        "relations": [{"id": "starred", "label": "starred", "direction": "out"}],
        "relations_total": 1,
        "via": [["Big", "Tom Hanks"]],
    }
    assert isinstance(dead, Failure)
    assert dead.message == 'No entities found for path "starred / released" from "Big" in knowledge graph'
    assert (len(whole.items), whole.total, whole.truncated) == (1000, 1500, True)
    assert whole.details["via"] == [["hub"]] * 50
    again = {**other_films, "return": True, "path": [], "relations": 1}
    [ranked] = tools.execute("films", [Action("follow_path", {**again, "question": "when was it released?"})])
    [relation] = ranked.details["relations"]
    assert (relation["id"], ranked.details["relations_total"]) == ("released", 2)
    assert 0 < relation["score"] < 1


def test_forms_are_expanded_step_by_step(tools):
    asked = {"question": "how many other films did the stars of Big make?", "topics": ["Big"]}
    [begun] = tools.execute("films", [Action("expand", asked)])
    assert begun.items == (Item("Big", "Big"),)
    starred = {
        "form": "(JOIN (R starred) Big)",
        "operation": "join",
        "path": [{"id": "starred", "label": "starred", "inverse": False}],
        "operand": {"id": "Big", "label": "Big"},
    }
    assert starred in begun.details["expansions"]
    stars, hostile, wrong = tools.execute(
        "films",
        [
            Action("expand", {**asked, "form": starred["form"]}),
            Action("expand", {**asked, "form": "(JOIN (R starred Big)"}),
            Action("expand", {**asked, "operations": ["fly"]}),
        ],
    )
    assert [item.id for item in stars.items] == ["Elizabeth Perkins", "Tom Hanks"]
    assert [one["form"] for one in stars.details["expansions"]] == [
        "(JOIN starred (JOIN (R starred) Big))",
        "(COUNT (JOIN (R starred) Big))",
    ]
    assert (hostile.kind, hostile.details) == ("query_syntax", {"position": 18})
    assert wrong.code is ErrorCode.FORMAT_ERROR
    [films] = tools.execute(
        "films", [Action("expand", {**asked, "form": "(JOIN starred (JOIN (R starred) Big))"})]
    )
    assert films.items == (Item("Philadelphia", "Philadelphia"),)
    many = [Action("expand", {**asked, "form": "(JOIN (R links) hub)", "limit": 5})] * 40
    pages = tools.execute("films", many)
    assert [(len(page.items), page.total, page.truncated) for page in pages] == [(5, 1500, True)] * 40


def test_what_comes_back_is_accepted_as_an_argument(tools):
    seen, frontier = set(), ['Müller, "K." & Söhne/(GmbH) 100%', "Big"]
    while frontier:
        entity = frontier.pop()
        seen.add(entity)
        for relations, entities in (
            ("get_tail_relations", "get_tail_entities"),
            ("get_head_relations", "get_head_entities"),
        ):
            [found] = tools.execute("films", [Action(relations, {"entity": entity})])
            for relation in getattr(found, "items", ()):
                [found] = tools.execute(
                    "films", [Action(entities, {"entity": entity, "relation": relation.id})]
                )
                frontier.extend(item.id for item in found.items if item.id not in seen)
    assert {"Köln 😀", "1988", "Philadelphia"} < seen


def test_failures(tools):
    actions = [
        Action("get_tail_relations", {"entity": "none"}),
        Action("get_tail_entities", {"entity": "Big", "relation": "none"}),
        Action("get_tail_relations", {"entity": "1988"}),
        Action("get_tail_relations", {"entity": 7}),
        Action("get_tail_relations", {"entity": "half a pair: \ud800"}),
        Action("fly", {}),
    ]
    results = tools.execute("films", actions)
    assert all(isinstance(result, Failure) for result in results)
    assert [result.code for result in results] == [
        ErrorCode.ENTITY_NOT_FOUND,
        ErrorCode.RELATION_NOT_FOUND,
        ErrorCode.NO_RESULTS,
        ErrorCode.FORMAT_ERROR,
        ErrorCode.ENTITY_NOT_FOUND,
        ErrorCode.SERVER_ERROR,
    ]


def test_subgraphs_are_not_there(tools):
    [result] = tools.execute("films", [Action("get_tail_relations", {"entity": "Big"})], graph="q1")
    assert result.message == 'Sample "q1" not found in KG'


def test_mentions(tools):
    [result] = tools.execute("films", [Action("link_entities", {"question": "is Tom Hanks in Big"})])
    assert result.items == (Mention("Tom Hanks", "Tom Hanks", 3, 12), Mention("Big", "Big", 16, 19))


def test_batches_of_any_size(tools):
    assert tools.execute("films", []) == []
    results = tools.execute("films", [Action("get_tail_relations", {"entity": "Big"})] * 1500)
    assert [result.total for result in results] == [2] * 1500


def test_an_unknown_graph(tools):
    with pytest.raises(GraphNotFoundError, match="loaded graphs: films"):
        tools.execute("none", [])
    with pytest.raises(GraphNotFoundError):
        tools.execute("../films", [])


def test_the_list_of_graphs(tools):
    [graph] = tools.graphs()
    assert (graph.name, graph.triples) == ("films", 1505)

"""The paper's eight errors, and what arguments are taken."""

from __future__ import annotations

import pytest

from kbqa.errors import GraphNotFoundError
from kbqa.kg.actions import Action, Failure, Item, Mention, Success
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools

TRIPLES = [
    ("Barack Obama", "people.person.children", "Malia Obama"),
    ("Barack Obama", "people.person.children", "Sasha Obama"),
    ("Big", "film.director.film", "1988"),
]


@pytest.fixture(scope="module")
def tools():
    return LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples(TRIPLES)}))


def one(tools, name, graph=None, **arguments):
    [result] = tools.execute("toy", [Action(name, arguments)], graph=graph)
    return result


@pytest.mark.parametrize(
    ("name", "arguments", "graph", "code", "kind", "message"),
    [
        (
            *("get_entity_info", {"entity": "Big"}, None, "KG_SERVER_ERROR", "invalid_action"),
            'Action "get_entity_info" not available (use: get_head_relations, get_tail_relations, '
            "get_head_entities, get_tail_entities)",
        ),
        (
            *("get_tail_entities", {"entity": "Big"}, None, "KG_FORMAT_ERROR", "missing_required_fields"),
            "Missing required fields for get_tail_entities: relation_name",
        ),
        (
            *("get_head_entities", {}, None, "KG_FORMAT_ERROR", "missing_required_fields"),
            "Missing required fields for get_head_entities: entity_name, relation_name",
        ),
        (
            *("get_tail_relations", {"entity": "Big", "relation": "r"}, None, "KG_FORMAT_ERROR"),
            *("wrong_argument_count", "get_tail_relations accepts only one entity argument"),
        ),
        (
            *("get_head_relations", {"entity": ["Big", "Up"]}, None, "KG_FORMAT_ERROR"),
            *("wrong_argument_count", "get_head_relations accepts only one entity argument"),
        ),
        (
            *("get_tail_relations", {"entity": "Big"}, "sample_12345", "KG_SAMPLE_NOT_FOUND"),
            *("sample_missing", 'Sample "sample_12345" not found in KG'),
        ),
        (
            *("get_tail_relations", {"entity": "Barack Obamaa"}, None, "KG_ENTITY_NOT_FOUND"),
            *("entity_not_in_kg", 'Entity "Barack Obamaa" not found in KG'),
        ),
        (
            *("get_tail_entities", {"entity": "Big", "relation": "location.capital"}, None),
            *("KG_RELATION_NOT_FOUND", "invalid_relation", 'Relation "location.capital" not found in KG'),
        ),
        (
            *("get_tail_relations", {"entity": "1988"}, None, "KG_NO_RESULTS", "no_relations_found"),
            'No tail relations found for entity "1988" in knowledge graph',
        ),
        (
            *("get_head_relations", {"entity": "Big"}, None, "KG_NO_RESULTS", "no_relations_found"),
            'No head relations found for entity "Big" in knowledge graph',
        ),
        (
            *("get_tail_entities", {"entity": "Barack Obama", "relation": "film.director.film"}, None),
            *("KG_NO_RESULTS", "no_entities_found"),
            'No tail entities found for relation "film.director.film" with head "Barack Obama" '
            "in knowledge graph",
        ),
        (
            *("get_head_entities", {"entity": "Malia Obama", "relation": "film.director.film"}, None),
            *("KG_NO_RESULTS", "no_entities_found"),
            'No head entities found for relation "film.director.film" with tail "Malia Obama" '
            "in knowledge graph",
        ),
    ],
)
def test_errors_are_the_papers_word_for_word(tools, name, arguments, graph, code, kind, message):
    assert one(tools, name, graph, **arguments) == Failure(code, kind, message)


def test_an_absent_entity_is_reported_before_an_absent_relation(tools):
    assert one(tools, "get_tail_entities", entity="x", relation="y").code == "KG_ENTITY_NOT_FOUND"


def test_one_hop_answers(tools):
    assert [i.id for i in one(tools, "get_tail_relations", entity="Big").items] == ["film.director.film"]
    assert [i.id for i in one(tools, "get_head_relations", entity="1988").items] == ["film.director.film"]
    children = one(tools, "get_tail_entities", entity="Barack Obama", relation="people.person.children")
    assert [i.id for i in children.items] == ["Malia Obama", "Sasha Obama"]
    assert (children.total, children.truncated, children.cached) == (2, False, False)
    parents = one(tools, "get_head_entities", entity="Malia Obama", relation="people.person.children")
    assert [i.id for i in parents.items] == ["Barack Obama"]


def test_limit_and_offset_cut_a_result_and_say_so(tools):
    ask = {"entity": "Barack Obama", "relation": "people.person.children"}
    first = one(tools, "get_tail_entities", limit=1, **ask)
    assert ([i.id for i in first.items], first.total, first.truncated) == (["Malia Obama"], 2, True)
    last = one(tools, "get_tail_entities", limit=1, offset=1, **ask)
    assert ([i.id for i in last.items], last.total, last.truncated) == (["Sasha Obama"], 2, False)
    beyond = one(tools, "get_tail_entities", offset=5, **ask)
    assert (beyond.items, beyond.total, beyond.truncated) == ((), 2, False)


def test_the_servers_cap_holds_whatever_limit_is_asked_for():
    store = OxigraphStore.from_triples(("hub", "r", f"{n}") for n in range(20))
    tools = LocalGraphTools(FixedGraphs({"toy": store}), max_items=7)
    for arguments in ({}, {"limit": 100}):
        result = one(tools, "get_tail_entities", entity="hub", relation="r", **arguments)
        assert (len(result.items), result.total, result.truncated) == (7, 20, True)


@pytest.mark.parametrize("value", [None, 7, 1.5, True, "", [], ["Big"], {"a": 1}, "x" * 100_000])
def test_an_argument_that_is_no_name_is_a_format_error(tools, value):
    for arguments in (
        {"entity": value},
        {"entity": value, "relation": "r"},
        {"entity": "Big", "relation": value},
    ):
        result = one(tools, "get_tail_entities", **arguments)
        assert result.code == "KG_FORMAT_ERROR"
        assert len(result.message) < 1000


@pytest.mark.parametrize(
    "extra",
    [
        {"entities": "x"},
        {"limit": 0},
        {"limit": "5"},
        {"limit": True},
        {"limit": None},
        {"offset": -1},
        {"": 1},
    ],
)
def test_an_argument_that_is_unknown_or_out_of_range_is_a_format_error(tools, extra):
    assert one(tools, "get_tail_relations", entity="Big", **extra).code == "KG_FORMAT_ERROR"


@pytest.mark.parametrize(
    "name", ["", "GET_TAIL_RELATIONS", "x" * 100_000, None, 3, ["get_tail_relations"], {}]
)
def test_anything_can_be_named_as_an_action(tools, name):
    [result] = tools.execute("toy", [Action(name, {"entity": "Big"})])
    assert (result.code, result.kind) == ("KG_SERVER_ERROR", "invalid_action")
    assert len(result.message) < 1000


def test_link_entities_finds_the_names_in_a_question(tools):
    result = one(tools, "link_entities", question="who are the children of Barack Obama?")
    assert result.items == (Mention("Barack Obama", "Barack Obama", 24, 36),)
    nothing = one(tools, "link_entities", question="who are you")
    assert isinstance(nothing, Success)
    assert (nothing.items, nothing.total) == ((), 0)
    assert one(tools, "link_entities", entity="Big").code == "KG_FORMAT_ERROR"


def test_complete_name_pages_and_refuses_what_is_no_beginning(tools):
    result = one(tools, "complete_name", text="barack ob")
    assert (result.items, result.truncated) == ((Item("Barack Obama", "Barack Obama"),), False)
    everything = one(tools, "complete_name", text="b", limit=1)
    assert (len(everything.items), everything.total, everything.truncated) == (1, 2, True)
    following = one(tools, "complete_name", text="b", limit=1, offset=1)
    assert following.items != everything.items
    for text in ("", "x" * 201, 3, None):
        assert one(tools, "complete_name", text=text).kind == "missing_required_fields"


def test_a_failed_action_fails_no_neighbour(tools):
    actions = [Action("get_tail_relations", {"entity": e}) for e in ("Big", "none", "Barack Obama")]
    results = tools.execute("toy", [*actions, Action("no", {})])
    assert [isinstance(r, Success) for r in results] == [True, False, True, False]


def test_an_unknown_graph_is_an_exception(tools):
    with pytest.raises(GraphNotFoundError, match="loaded graphs: toy"):
        tools.execute("none", [])
    assert [info.name for info in tools.graphs()] == ["toy"]

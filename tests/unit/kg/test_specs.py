"""Actions as values: how they are registered, what they say of themselves, and what their items cite."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from kbqa import parts
from kbqa.errors import ConfigurationError
from kbqa.kg.actions import Action, DatedItem, Failure, Item, Mention, ScoredItem, Success
from kbqa.kg.arguments import ENTITY
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.specs import COMMON_ERRORS, Actions, ActionSpec, Cost
from kbqa.kg.tools import LocalGraphTools

TRIPLES = [
    ("Heat", "directed by", "Mann"),
    ("Ali", "directed by", "Mann"),
    ("Heat", "starring", "Pacino"),
    ("Mann", "knows", "Mann"),
]


def answer(surroundings, arguments):
    return Success((), 0)


SPEC = ActionSpec("toy", "A toy.", answer, {"entity": ENTITY})
NOT_A_SPEC = {"name": "toy"}


@pytest.fixture
def installed(monkeypatch):
    """Has entry points of the group `kbqa.actions` lead to names of this module."""

    def install(**named):
        points = [
            EntryPoint(name, f"{__name__}:{object_}", "kbqa.actions") for name, object_ in named.items()
        ]
        monkeypatch.setattr(parts, "entry_points", lambda group: EntryPoints(points).select(group=group))

    return install


@pytest.fixture(scope="module")
def ask():
    tools = LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples(TRIPLES)}), deadline_s=30)

    def execute(name, **arguments):
        [result] = tools.execute("toy", [Action(name, arguments)])
        return result

    return execute


def test_actions_are_in_the_order_in_which_they_were_registered_and_installed_ones_come_last(installed):
    installed(toy="SPEC")
    actions = Actions()
    first = actions.register(ActionSpec("first", "It.", answer, {}))
    assert dict(actions) == {"first": first, "toy": SPEC}
    assert list(actions) == ["first", "toy"]
    assert actions.find("toy") is SPEC
    assert actions.find(["toy"]) is None


def test_a_name_is_taken_once():
    actions = Actions()
    actions.register(SPEC)
    actions.register(SPEC)
    with pytest.raises(ConfigurationError, match='an action "toy" already'):
        actions.register(ActionSpec("toy", "Another.", answer, {}))
    actions.unregister("toy")
    assert actions.find("toy") is None


def test_an_installed_action_cannot_take_the_place_of_another_nor_be_anything_else(installed):
    installed(other="SPEC")
    actions = Actions()
    actions.register(ActionSpec("toy", "The first.", answer, {}))
    with pytest.raises(ConfigurationError, match='an action "toy" already'):
        actions.find("toy")
    installed(toy="NOT_A_SPEC")
    with pytest.raises(ConfigurationError, match="toy .*:NOT_A_SPEC. is not an ActionSpec"):
        Actions().find("toy")


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_says_what_agents_and_readers_need(name):
    spec = ACTIONS[name]
    assert len(spec.description) > 40
    assert all(argument.description and argument.kind.schema for argument in spec.arguments.values())
    assert set(spec.costly) <= set(spec.optional)
    assert not set(spec.errors) & set(COMMON_ERRORS)


@pytest.mark.parametrize(
    ("name", "arguments", "cost"),
    [
        ("get_tail_entities", {"entity": "Heat", "relation": "starring"}, Cost.LOOK_UP),
        ("get_tail_entities", {"entity": "Heat", "relation": "starring", "gate": False}, Cost.SEARCH),
        ("execute_sparql", {"query": "ASK { ?s ?p ?o }"}, Cost.QUERY),
        ("describe", {"entity": "Heat"}, Cost.SEARCH),
    ],
)
def test_what_an_action_costs_is_for_its_arguments_to_say(name, arguments, cost):
    assert ACTIONS[name].cost_of(arguments) is cost


@pytest.mark.parametrize(
    ("name", "written", "item"),
    [
        ("get_tail_relations", {"id": "a", "label": "A"}, Item("a", "A")),
        ("get_tail_entities", {"id": "a", "label": "A"}, Item("a", "A")),
        ("find_relation", {"id": "a", "label": "A", "times": ["1999"]}, DatedItem("a", "A", ("1999",))),
        ("search_types", {"id": "a", "label": "A", "score": 0.5, "direction": ""}, ScoredItem("a", "A", 0.5)),
        (
            *("link_entities", {"id": "a", "label": "A", "start": 1, "end": 2, "score": 1.0}),
            Mention("a", "A", 1, 2),
        ),
        ("describe", {"id": "a", "facts": []}, {"id": "a", "facts": []}),
    ],
)
def test_items_are_read_as_what_the_action_says_they_are(name, written, item):
    assert ACTIONS[name].read_items([written]) == (item,)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_tail_relations", {"entity": "none"}),
        ("get_tail_relations", {"entity": "Pacino"}),
        ("get_head_entities", {"entity": "Mann", "relation": "none"}),
        ("get_head_entities", {"entity": "Heat", "relation": "starring"}),
        ("get_tail_entities", {"entity": "Heat", "relation": "zzz", "gate": True}),
        ("get_tail_entities", {"entity": "Pacino", "relation": "zzz", "gate": True}),
        ("find_relation", {"entity": "Heat", "relation": "zzz"}),
        ("find_relation", {"expression": "(JOIN", "relation": "knows"}),
        ("find_relation", {"expression": "(JOIN none Mann)", "relation": "knows"}),
        ("execute_logical_form", {"expression": "(JOIN knows none)"}),
        ("execute_sparql", {"query": "SELECT"}),
        ("execute_sparql", {"query": "CONSTRUCT WHERE { ?s ?p ?o }"}),
        ("search_types", {"query": "film"}),
        ("search_graph_patterns", {"sparql": "SELECT ?y WHERE { ?y ?p ?o }"}),
        ("search_graph_patterns", {"sparql": "SELECT ?x WHERE { ?x <urn:none> ?o }"}),
        ("node_relations", {"node": "none", "question": "?"}),
        ("node_relations", {"node": "?y", "question": "?", "query": "SELECT ?x WHERE { ?x ?p ?o }"}),
        ("entity_distance", {"set_a": ["none"], "set_b": ["Heat"]}),
        ("describe", {"entity": "none"}),
        ("follow_path", {"entity": "none", "path": []}),
        ("follow_path", {"entity": "Heat", "path": ["none"]}),
        ("follow_path", {"entity": "Heat", "path": ["knows"]}),
    ],
)
def test_an_action_fails_as_it_says_it_may(ask, name, arguments):
    result = ask(name, **arguments)
    assert isinstance(result, Failure)
    assert result.kind in ACTIONS[name].errors


@pytest.mark.parametrize(
    ("name", "arguments", "cited"),
    [
        (
            *("get_tail_entities", {"entity": "Heat", "relation": "directed by"}),
            {"Mann": [("Heat", "directed by", "Mann")]},
        ),
        (
            *("get_head_entities", {"entity": "Mann", "relation": "directed by"}),
            {"Heat": [("Heat", "directed by", "Mann")], "Ali": [("Ali", "directed by", "Mann")]},
        ),
        (
            *("get_tail_entities", {"entity": "Heat", "relation": "directed", "gate": True, "tau_low": 0.1}),
            {"Mann": [("Heat", "directed by", "Mann")]},
        ),
        (
            "find_relation",
            {"entity": "Heat", "relation": "starring"},
            {"Pacino": [("Heat", "starring", "Pacino")]},
        ),
        (
            "find_relation",
            {"entity": "Pacino", "relation": "starring"},
            {"Heat": [("Heat", "starring", "Pacino")]},
        ),
        ("find_relation", {"expression": "(JOIN starring Pacino)", "relation": "directed by"}, {"Mann": []}),
        (
            *("follow_path", {"entity": "Heat", "path": ["directed by", "^directed by"]}),
            {"Ali": [("Heat", "directed by", "Mann"), ("Ali", "directed by", "Mann")]},
        ),
        ("follow_path", {"entity": "Mann", "path": ["knows"]}, {"Mann": [("Mann", "knows", "Mann")]}),
        ("follow_path", {"entity": "Heat", "path": []}, {"Heat": []}),
    ],
)
def test_an_item_cites_the_triples_by_which_it_was_found(ask, name, arguments, cited):
    result, spec = ask(name, **arguments), ACTIONS[name]
    assert isinstance(result, Success), result
    items = [item.id for item in result.items]
    told = spec.cites(arguments, items, result.details)
    assert {item: list(triples) for item, triples in zip(items, told, strict=True)} == cited
    assert {triple for triples in told for triple in triples} <= set(TRIPLES)


@pytest.mark.parametrize(
    ("name", "details", "told"),
    [
        ("find_relation", {}, [(), ()]),
        ("follow_path", {}, [(), ()]),
        ("follow_path", {"via": [["Heat"]]}, [(("Heat", "starring", "Pacino"),), ()]),
    ],
)
def test_what_an_answer_does_not_tell_is_not_cited(name, details, told):
    arguments = {"entity": "Heat", "path": ["starring"], "relation": "starring"}
    assert ACTIONS[name].cites(arguments, ["Pacino", "Mann"], details) == told


def test_arguments_are_read_back_from_how_a_trajectory_writes_them():
    arguments = {"entity": "12", "path": ["knows"], "return": True, "offset": 3, "question": "[who]"}
    written = {name: v if isinstance(v, str) else json.dumps(v) for name, v in arguments.items()}
    assert ACTIONS["follow_path"].read_arguments(written) == arguments
    day = {"expression": "(JOIN a b)", "now": "2015-08-10", "tau_low": "0.5"}
    assert ACTIONS["execute_logical_form"].read_arguments(day) == {**day, "tau_low": 0.5}

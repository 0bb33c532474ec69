"""`expand` from a literal, such as the country of an address, at both kinds of stores."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kbqa.kg.actions import Action, ErrorKind
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.forms import leaf_of
from kbqa.kg.tools import LocalGraphTools
from kbqa.logical_forms.algebra import XSD, Entity, Literal
from tests.opened_graphs import loaded, served

EX = "http://ex.org/"
TURTLE = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:acme a :Firm ; rdfs:label "Acme" ; :city "Toulouse" ; :country "France" ; :size 7 .
:bolt a :Firm ; rdfs:label "Bolt" ; :city "Lyon" ; :country "France" .
:cord a :Firm ; rdfs:label "Cord" ; :city "Rome"@it ; :country "Italy" ; :motto "say \\"a\\\\b\\"\\tnow" .
:nut rdfs:label "nut" ; :soldBy :acme . :bolt5 rdfs:label "bolt 5" ; :soldBy :cord .
"""
ODD = '"say \\"a\\\\b\\"\tnow"'


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    with ExitStack() as opened:
        catalog = loaded(opened, tmp_path_factory.mktemp("home"), "firms", TURTLE)
        remote, _ = served(opened, TURTLE)
        yield {"embedded": catalog.get("firms"), "endpoint": remote}


@pytest.fixture(params=["embedded", "endpoint"])
def store(graphs, request):
    return graphs[request.param]


@pytest.fixture
def execute(store):
    tools = LocalGraphTools(FixedGraphs({"firms": store}), deadline_s=60)

    def execute(name, **arguments):
        [result] = tools.execute("firms", [Action(name, arguments)])
        return result

    return execute


def forms(result, operation):
    listed = result.details["expansions"]
    return sorted(one["form"].replace(EX, "") for one in listed if one["operation"] == operation)


@pytest.mark.parametrize(
    ("id_", "written", "member"),
    [
        ('"Toulouse"', '(JOIN city "Toulouse")', "acme"),
        ('"Rome"@it', '(JOIN city "Rome"@it)', "cord"),
        (f'"7"^^<{XSD}integer>', f"(JOIN size 7^^{XSD}integer)", "acme"),
        ('"say \\"a\\\\b\\"\\tnow"', f"(JOIN motto {ODD})", "cord"),
    ],
)
def test_a_literal_leads_back_to_what_has_it(execute, store, id_, written, member):
    id_ = store.resolve_entity(id_)[0]
    begun = execute("expand", question="which firms?", topics=[id_], operations=["join"])
    assert [item.id for item in begun.items] == [id_]
    assert forms(begun, "join") == [written]
    [one] = begun.details["expansions"]
    assert one["operand"]["id"] == id_
    found = execute("expand", question="which firms?", topics=[id_], form=one["form"])
    assert [item.id for item in found.items] == [f"{EX}{member}"]
    # The query that is cited as evidence finds the same.
    shown = execute("execute_logical_form", expression=one["form"], explain=True)
    assert [item.id for item in shown.items] == [f"{EX}{member}"]
    [query] = shown.details["sparql"]
    cited = execute("execute_sparql", query=query)
    assert [row["x"]["id"] for row in cited.items] == [f"{EX}{member}"]


def test_a_set_is_reduced_to_those_with_a_literal(execute):
    kept = execute("expand", question="which?", topics=['"France"'], form=f"{EX}Firm", operations=["keep"])
    assert forms(kept, "keep") == ['(AND Firm (JOIN country "France"))']
    [one] = kept.details["expansions"]
    assert one["operand"] == {"id": '"France"', "label": "France"}
    form = f'(JOIN {EX}country "France")'
    reduced = execute("expand", question="which?", topics=['"France"', '"Lyon"'], form=form)
    assert forms(reduced, "keep") == ['(AND (JOIN country "France") (JOIN city "Lyon"))']


def test_a_literal_that_the_graph_does_not_have_is_unknown(execute):
    alone = execute("expand", question="which firms?", topics=['"Berlin"'], operations=["join"])
    assert alone.kind is ErrorKind.ENTITY_NOT_IN_KG


def test_one_hop_actions_take_a_literal(execute):
    assert execute("get_tail_relations", entity='"Toulouse"').kind is ErrorKind.NO_RELATIONS_FOUND
    assert [item.id for item in execute("get_head_relations", entity='"Toulouse"').items] == [f"{EX}city"]
    back = execute("get_head_entities", entity='"Toulouse"', relation=f"{EX}city")
    assert [item.id for item in back.items] == [f"{EX}acme"]


def test_a_topic_is_written_as_a_literal_only_if_it_is_one(store):
    assert leaf_of(store, '"Rome"@it') == Literal("Rome", language="it")
    assert leaf_of(store, f'"7"^^<{XSD}integer>') == Literal("7", f"{XSD}integer")
    assert leaf_of(store, f"{EX}acme") == Entity(f"{EX}acme")
    assert leaf_of(store, "Toulouse") == Entity("Toulouse")
    assert leaf_of(store, '"quoted" name') == Entity('"quoted" name')


def test_in_a_delimited_file_an_entity_may_have_quotes_in_its_name():
    heroes = OxigraphStore.from_triples([('"Heroes"', "by", "Bowie")])
    assert leaf_of(heroes, '"Heroes"') == Entity('"Heroes"')

"""Of which class a question says that its answers are, and what that does to where a form may end."""

from __future__ import annotations

import pytest

from kbqa.kg.actions import Action
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.retrieval.asked_class import asked_class, broader, whole_class
from kbqa.kg.tools import LocalGraphTools

EX = "http://it.example/"
SUBCLASS = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
HIERARCHY = f":Server {SUBCLASS} :Machine . :Machine {SUBCLASS} :Thing .\n"
RUNNING = """\
:web a :Server ; :in :dublin .
:db a :Server ; :in :dublin .
:shop a :Service ; :on :web ; :ownedBy :sales .
:sales a :Team .
:rack a :Machine .
"""
INCIDENTS = """\
:i1 a :Incident ; :severity "high" .
:i2 a :Incident ; :severity "high" ; :near :i1 .
:i3 :near :i1, :i2 .
"""
NAMES = ("service", "server", "team", "power plant", "city")


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("which services run in Dublin?", "service"),
        ("What servers does Payments own?", "server"),
        ("which of the services depend on it", "service"),
        ("in which cities do they run?", "city"),
        ("list all teams in Oslo", "team"),
        ("give me the power plants of Norway", "power plant"),
        ("which power plants are old?", "power plant"),
        ("which team is on call?", "team"),
        ("which team owns the ledger?", "team"),
        ("which server crashed today?", "server"),
        ("which team", "team"),
        # A singular may begin another name, and "of" a relation.
        ("which service level does it have?", None),
        ("which team lead left?", None),
        ("which server speed is best?", None),
        ("what city of origin has it?", None),
        # What is asked for is something else.
        ("who leads the team that owns billing?", None),
        ("where do the services run?", None),
        ("tell me what the servers of Payments cost", None),
        ("list the team's servers", None),
        ("show the services in Dublin's memory", None),
        ("which film is it?", None),
        ("services", None),
        ("", None),
    ],
)
def test_a_class_is_asked_for_behind_which_or_in_a_request(question, asked):
    assert asked_class(question, {name: name for name in NAMES}) == asked


@pytest.mark.parametrize(
    ("question", "whole"),
    [
        ("list all teams", "team"),
        ("Which teams are there?", "team"),
        ("what power plants exist", "power plant"),
        ("show me the servers please", "server"),
        ("which teams are old?", None),
        ("which teams", "team"),
        ("list all teams in Oslo", None),
        ("how many teams are there?", None),
    ],
)
def test_all_members_of_a_class_are_asked_for_if_nothing_else_is_said(question, whole):
    assert whole_class(question, {name: name for name in NAMES}) == whole


@pytest.fixture
def expand(tmp_path):
    """Expands a form for a question about some triples."""

    def told(lines, question, form, **options):
        arguments = {"question": question, **options} | ({"form": form} if form else {})
        file = tmp_path / "it.ttl"
        file.write_text(f"@prefix : <http://it.example/> .\n{HIERARCHY}{lines}")
        catalog = GraphCatalog(tmp_path / "home")
        catalog.load("it", file)
        try:
            [result] = LocalGraphTools(catalog).execute("it", [Action("expand", arguments)])
            return result.details
        finally:
            catalog.close()

    return told


def test_a_form_ends_elsewhere_if_a_join_leads_to_the_class_and_no_member_is_of_it(expand):
    servers = f"(JOIN {EX}in {EX}dublin)"
    details = expand(RUNNING, "which services run in Dublin?", servers)
    assert details["elsewhere"] is True
    for question, form in (
        ("which servers run in Dublin?", servers),  # they are some
        ("which teams run in Dublin?", servers),  # no join leads to one
        ("what runs in Dublin?", servers),  # no class is asked for
        ("which machines run in Dublin?", servers),  # a server is one
        ("which services run in Dublin?", f"(JOIN {EX}on {servers})"),
    ):
        assert "elsewhere" not in expand(RUNNING, question, form), (question, form)


def test_a_question_for_all_of_a_class_has_one_form(expand):
    details = expand(RUNNING, "list all servers", None)
    assert [one["form"] for one in details["expansions"]] == [f"{EX}Server"]
    assert details["whole"] is True
    assert expand(RUNNING, "list all servers", f"{EX}Server")["expansions"] == []
    for question, options in (
        ("list all servers in Dublin", {}),
        ("list all servers", {"topics": [f"{EX}dublin"]}),
        ("list all servers", {"operations": ["join"], "topics": []}),
    ):
        assert "whole" not in expand(RUNNING, question, None, **options), question


def test_values_are_of_no_class_but_entities_without_one_may_be_of_any(expand):
    levels = f"(JOIN (R {EX}severity) {EX}i1)"
    assert expand(INCIDENTS, "which incidents were high?", levels)["elsewhere"] is True
    untyped = f"(JOIN {EX}near {EX}i1)"
    assert "elsewhere" not in expand(INCIDENTS, "which incidents were near?", untyped)


def test_broader_classes_are_found_at_every_step_even_in_a_circle(tmp_path):
    file = tmp_path / "classes.ttl"
    file.write_text(f"@prefix : <http://it.example/> .\n{HIERARCHY}:Thing {SUBCLASS} :Machine .\n")
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("classes", file)
    store = catalog.get("classes")
    assert broader(store, [f"{EX}Server"]) == {f"{EX}{name}" for name in ("Server", "Machine", "Thing")}
    assert broader(store, []) == set()
    catalog.close()

"""`expand` over a graph drawn by hand: what is listed, and that it holds when it is executed."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kbqa.kg.actions import Action, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from tests.opened_graphs import loaded, served
from tests.unit.kg.retrieval.expanding import (
    EX,
    MANNS,
    SELECTIONS,
    TURTLE,
    XSD,
    expanding,
    listed,
    names,
    short,
)


def test_a_form_asks_about_the_topics_that_it_does_not_name(expand):
    topics = f"{EX}mann", f"{EX}heat", f"{EX}foxx"
    assert listed(expand(MANNS, *topics), "ask") == []
    result = expand(MANNS, *topics, ask=True)
    asks = [one for one in result.details["expansions"] if one["operation"] == "ask"]
    assert [short(one["form"]) for one in asks] == [
        f"(ASK {short(MANNS)} {name})" for name in ("heat", "foxx")
    ]
    assert [one["operand"]["label"] for one in asks] == ["Heat", "Jamie Foxx"]
    for one, expected in zip(asks, ("true", "false"), strict=True):
        answer = expand(one["form"], *topics, ask=True)
        assert [item.label for item in answer.items] == [expected]
        assert answer.items[0].id == f'"{expected}"^^<{XSD}boolean>'
        assert answer.details["expansions"] == []


def test_what_is_not_in_the_graph_is_neither_a_member_nor_none(expand):
    result = expand(f"(ASK {MANNS} {EX}nobody)", ask=True)
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.ENTITY_NOT_IN_KG


def test_a_topic_begins_with_a_join_for_each_of_its_relations(expand):
    result = expand(None, f"{EX}heat", operations=["join"])
    assert sorted(listed(result)) == sorted(
        f"(JOIN (R {relation}) heat)" for relation in ("minutes", "star", "year", "director", "type")
    )
    [join] = [one for one in result.details["expansions"] if "director" in one["form"]]
    assert join == {
        "form": f"(JOIN (R {EX}director) {EX}heat)",
        "operation": "join",
        "path": [{"id": f"{EX}director", "label": "directed by", "inverse": False}],
        "operand": {"id": f"{EX}heat", "label": "Heat"},
    }
    assert (names(result), result.total, result.truncated) == (["heat"], 1, False)
    assert result.details["topics"] == {f"{EX}heat": {"label": "Heat"}}
    assert "(JOIN director mann)" in listed(expand(None, f"{EX}mann"), "join")


def test_several_topics_begin_side_by_side_and_pages_are_of_topics(expand):
    result = expand(None, f"{EX}pacino", f"{EX}mann", operations=["join"])
    assert {form.split()[-1] for form in listed(result)} == {"pacino)", "mann)"}
    page = expand(None, f"{EX}pacino", f"{EX}mann", limit=1, offset=1)
    assert (names(page), page.total, page.truncated) == (["mann"], 2, False)


def test_namesakes_are_told_apart_by_their_class(expand):
    result = expand(None, f"{EX}heat", f"{EX}play", operations=["join"])
    told = {(one["operand"]["id"], one["of"]) for one in result.details["expansions"]}
    assert told == {(f"{EX}heat", "film"), (f"{EX}play", "stage play")}
    # A name that stands for both is one topic.
    both = expand(None, "Heat", operations=["join"])
    assert {"(JOIN (R author) Heat)", "(JOIN (R star) Heat)"} < set(listed(both))
    assert "of" not in both.details["expansions"][0]


def test_an_unknown_topic_fails_unless_there_is_something_else_to_begin_with(expand):
    alone = expand(None, "nobody", operations=["join"])
    assert (alone.kind, alone.message) == (ErrorKind.ENTITY_NOT_IN_KG, 'Entity "nobody" not found in KG')
    assert names(expand(None, "nobody", f"{EX}heat", operations=["join"])) == ["heat"]


def test_where_a_form_has_no_other_members_it_comes_back_to_its_topics(expand):
    """The director of the films by Mann is Mann; the films by the director of Heat are the others, too."""
    back = f"(JOIN (R {EX}director) {MANNS})"
    result = expand(back, f"{EX}mann")
    assert (names(result), result.total, result.details["return"]) == (["mann"], 1, True)
    assert names(expand(f"(JOIN {EX}director {back})")) == ["ali", "heat", "miami"]
    [number] = expand(f"(COUNT {back})").items
    assert number.label == "1"
    others = expand(f"(JOIN {EX}director (JOIN (R {EX}director) {EX}heat))")
    assert (names(others), "return" in others.details) == (["ali", "miami"], False)
    assert isinstance(expand(f"(JOIN (R {EX}author) {MANNS})", f"{EX}mann"), Failure)


def test_a_join_that_only_undoes_the_one_before_is_not_listed():
    """The parent of the children of Ann is Ann, too, but by another relation: somebody may ask for that."""
    triples = [
        ("Ann", "child", "Bob"),
        ("Bob", "parent", "Ann"),
        ("Cy", "friend", "Dee"),
        ("Ed", "friend", "Dee"),
    ]
    expand = expanding(FixedGraphs({"toy": OxigraphStore.from_triples(triples)}), "toy")
    children, friends = "(JOIN (R child) Ann)", "(JOIN (R friend) Cy)"
    assert listed(expand(children, "Ann"), "join") == [f"(JOIN (R parent) {children})"]
    assert listed(expand(children, "Ann", **{"return": True}), "join") == [
        f"(JOIN child {children})",
        f"(JOIN (R parent) {children})",
    ]
    assert listed(expand(friends, "Cy"), "join") == [f"(JOIN friend {friends})"]  # it leads to Ed
    [alone] = expand(f"(JOIN child {children})", "Ann").items
    assert alone.id == "Ann"


def test_of_a_relation_that_leads_both_ways_the_direction_that_is_asked_for_is_listed():
    triples = [("Ann", "reports_to", "Bob"), ("Bob", "reports_to", "Cy"), ("Bob", "owns", "Rex")]
    expand = expanding(FixedGraphs({"toy": OxigraphStore.from_triples(triples)}), "toy")
    up, down, owns = "(JOIN (R reports_to) Bob)", "(JOIN reports_to Bob)", "(JOIN (R owns) Bob)"
    for question, joins in {
        "who reports to Bob ?": [down, owns],
        "who does Bob report to ?": [up, owns],
        "who is the boss of Bob ?": [down, up, owns],
        "who is the owner of Bob ?": [down, up, owns],  # a noun, so that what he owns stays an option
        "who owns Bob ?": [down, up],
    }.items():
        assert sorted(listed(expand(None, "Bob", question=question), "join")) == sorted(joins), question
    [lacks] = expand(None, "Bob", question="who owns Bob ?", missing=True).details["missing"]
    assert (lacks["path"], lacks["form"]) == (
        [{"id": "owns", "label": "owns", "inverse": True}],
        "(JOIN owns Bob)",
    )


def test_ways_lead_to_values_through_the_node_before(expand_here):
    result = expand_here(f"(JOIN (R {EX}minutes) {MANNS})", f"{EX}mann")
    assert [[tuple(map(short, fact)) for fact in way] for way in result.details["ways"]] == [
        [(film, "director", "mann"), (film, "minutes", f'"{minutes}"^^<{XSD}integer>')]
        for film, minutes in (("miami", 132), ("ali", 157), ("heat", 170))
    ]


def test_without_a_topic_a_class_begins(expand):
    result = expand(question="how many stage plays are there?")
    assert listed(result)[0] == "Play"
    assert sorted(listed(result)) == ["Film", "Person", "Play", "Remake"]
    assert {one["operation"] for one in result.details["expansions"]} == {"start"}
    assert (result.items, result.total) == ((), 0)


def test_each_selection_is_listed_where_it_has_some_but_not_all(expand):
    asked = "the longest of 2001, longer than 140, in which Jamie Foxx stars?"
    result = expand(MANNS, f"{EX}foxx", question=asked)
    assert names(result) == ["ali", "heat", "miami"]
    form = short(MANNS)
    assert set(listed(result, "keep", "type", "max", "min")) == {
        f"(AND {form} (JOIN star foxx))",
        f"(AND Remake {form})",
        *(f"(ARG{extreme} {form} {path})" for extreme in ("MAX", "MIN") for path in ("minutes", "year")),
    }
    # 2001 is a number, too; all films are shorter, so that it is not a bound of their length.
    assert sorted(listed(result, "gt", "ge", "lt", "le")) == sorted(
        [
            *(f"(AND {form} ({op} minutes 140^^{XSD}integer))" for op in ("gt", "ge", "lt", "le")),
            *(f"(AND {form} ({op} year 2001^^{XSD}gYear))" for op in ("ge", "lt", "le")),
        ]
    )
    assert listed(result, "count") == [f"(COUNT {form})"]


def test_what_all_have_or_none_is_not_listed(expand):
    # All three are films by him; all are longer than 100, none than 200, and two of three have a year.
    result = expand(MANNS, f"{EX}mann", question="over 100 and under 200 minutes, after 1990")
    assert f"(AND Film {short(MANNS)})" not in listed(result)
    assert not [form for form in listed(result, "gt", "ge", "lt", "le") if " minutes " in form]
    assert sorted(form.split()[4] for form in listed(result, "gt", "ge")) == ["(ge", "(gt"]
    one = expand(f"(JOIN (R {EX}director) {EX}heat)", question="over 100?")
    assert not listed(one, *SELECTIONS)


def test_a_time_selects_members_by_their_interval(expand):
    stints = f"(JOIN (R {EX}role) {EX}pacino)"
    result = expand(stints, question="where was he in 1995?")
    [at] = [one for one in result.details["expansions"] if one["operation"] == "at"]
    assert short(at["form"]) == f"(TC {short(stints)} stint.from 1995)"
    assert at["operand"] == {"id": "1995", "label": "1995"}
    assert names(expand(at["form"])) == ["stint1"]
    # In 2001 he was nowhere.
    assert listed(expand(stints, question="where was he in 2001?"), "at") == []


def test_a_time_also_selects_what_the_intervals_lead_to(expand):
    places = f"(JOIN (R {EX}at) (JOIN (R {EX}role) {EX}pacino))"
    result = expand(places, question="where was he in 1995?")
    [at] = [one for one in result.details["expansions"] if one["operation"] == "at"]
    assert short(at["form"]) == "(JOIN (R at) (TC (JOIN (R role) pacino) stint.from 1995))"
    assert names(expand(at["form"])) == ["studio"]
    assert listed(expand(places, question="where was he in 2001?"), "at") == []
    assert listed(expand(at["form"], question="where was he in 1995?"), "at") == []


def test_nodes_without_names_are_told_from_those_that_can_be_answers(expand):
    stints = f"(JOIN (R {EX}role) {EX}pacino)"
    assert expand(stints).details["nameless"] is True
    # The names of years are their values; a film has one.
    for form in (
        f"(JOIN (R {EX}stint.from) {stints})",
        MANNS,
        f"(COUNT {stints})",
        f"(JOIN {EX}role {stints})",
    ):
        assert "nameless" not in expand(form).details
    # The studio has no name either: in a graph of ids, an id is all that can be told.
    assert "nameless" not in expand(f"(JOIN {EX}at {EX}studio)").details


def test_nodes_without_names_can_be_passed_in_one_step(expand_here):
    def passing(form, *topics, **more):
        return set(listed(expand_here(form, *topics, operations=["join"], through=True, **more))) - set(
            listed(expand_here(form, *topics, operations=["join"], **more))
        )

    stints = "(JOIN (R role) pacino)"
    expected = {f"(JOIN (R {name}) {stints})" for name in ("at", "stint.from", "stint.to")}
    assert passing(None, f"{EX}pacino") == expected
    # From a film by way of its star, whose stints have no names.
    star = f"(JOIN (R {EX}star) {EX}heat)"
    assert f"(JOIN (R at) (JOIN (R role) {short(star)}))" in passing(star)
    # Films have names, so that nothing passes them. From what has no name itself, nothing more is listed.
    assert passing(None, f"{EX}mann") == set()
    assert passing(f"(JOIN (R {EX}role) {EX}pacino)") == set()
    assert passing(None, f"{EX}studio") == set()


def test_what_passes_a_node_without_a_name_says_both_relations_and_what_lies_behind(expand_here):
    result = expand_here(None, f"{EX}pacino", operations=["join"], through=True, ahead=True)
    [there] = [one for one in result.details["expansions"] if short(one["form"]).startswith("(JOIN (R at) ")]
    assert [(short(hop["id"]), hop["inverse"]) for hop in there["path"]] == [("role", False), ("at", False)]
    assert [(short(hop["id"]), hop["inverse"]) for hop in there["behind"]] == [("at", True)]
    assert names(expand_here(there["form"], f"{EX}pacino")) == ["studio", "theatre"]


def test_a_graph_of_ids_has_no_more_options_for_it(tmp_path):
    with ExitStack() as opened:
        catalog = loaded(opened, tmp_path, "ids", f"@prefix : <{EX}> . :a :to :b . :b :to :c . :c :by :d .")
        expand = expanding(FixedGraphs({"ids": catalog.get("ids")}), "ids")
        assert listed(expand(None, f"{EX}a", through=True)) == listed(expand(None, f"{EX}a"))


@pytest.mark.parametrize("returns", [False, True])
def test_what_is_listed_has_members(expand, returns):
    """Every expansion, and every expansion of each: none is empty, unless it compares."""
    asked = {"question": "after 1995, over 140 minutes", "return": returns}
    topics = (f"{EX}heat", f"{EX}foxx")
    seen = 0
    first = [one["form"] for one in expand(None, *topics, **asked).details["expansions"]]
    for form in first:
        before = expand(form, *topics, **asked)
        assert not isinstance(before, Failure), form
        for one in before.details["expansions"]:
            result = expand(one["form"], *topics, **asked)
            if one["operation"] not in ("gt", "ge", "lt", "le"):
                assert not isinstance(result, Failure), one["form"]
            if one["operation"] in SELECTIONS and not isinstance(result, Failure):
                assert 0 < result.total < before.total, one["form"]
            seen += 1
    assert seen > 40


def test_both_stores_list_the_same(graphs):
    for form in (None, MANNS, f"(JOIN (R {EX}role) {EX}pacino)", f"(COUNT {MANNS})"):
        results = [
            expanding(graphs, name)(form, f"{EX}heat", "Jamie Foxx", question="in 1995, over 140 minutes?")
            for name in ("embedded", "endpoint")
        ]
        one, other = results
        here = {key: value for key, value in one.details.items() if key != "ways"}
        assert (one.items, one.total, here) == (other.items, other.total, other.details)


def test_only_the_operations_that_are_wanted_are_listed(expand):
    result = expand(MANNS, operations=["max", "count"])
    assert {one["operation"] for one in result.details["expansions"]} == {"max", "count"}
    assert expand(MANNS, operations=[]).details["expansions"] == []
    assert expand(operations=["join"]).details["expansions"] == []


def test_of_too_many_expansions_the_best_for_the_question_are_kept():
    triples = [("hub", f"relation {n}", f"n{n}") for n in range(300)]
    triples += [
        ("hub", "place of birth", "Rome"),
        *((f"n{n}", "type.object.type", f"t{n}") for n in range(9)),
    ]
    expand = expanding(FixedGraphs({"toy": OxigraphStore.from_triples(triples)}), "toy")
    asked = "what is the place of birth?"
    assert len(expand(None, "hub", question=asked).details["expansions"]) == 200
    [best] = listed(expand(None, "hub", question=asked, expansions=1))
    assert best == "(JOIN (R `place of birth`) hub)"
    kept = expand(None, "hub", question=asked, expansions=6).details["expansions"]
    assert [one["operation"] for one in kept] == ["join"] * 3 + ["start"] * 3
    assert len(expand(None, "Rome", question=asked, expansions=8).details["expansions"]) == 8
    assert expand(None, "hub", question=asked, expansions=0).details["expansions"] == []


def test_a_number_has_no_expansions(expand):
    result = expand(f"(COUNT {MANNS})")
    assert ([item.label for item in result.items], result.total) == (["3"], 1)
    assert result.details["expansions"] == []
    assert [item.label for item in expand(f"(COUNT (JOIN {EX}director {EX}foxx))").items] == ["0"]


def test_members_come_in_pages(expand):
    page = expand(MANNS, limit=1, offset=1)
    assert (names(page), page.total, page.truncated) == (["heat"], 3, True)
    assert not expand(MANNS, limit=1, offset=2).truncated


@pytest.mark.parametrize(
    ("form", "kind", "position"),
    [
        ("(JOIN (R x", "query_syntax", 11),
        ("(FLY away)", "query_syntax", 2),
        (")" * 9, "query_syntax", 1),
        ("(" * 8000, "query_syntax", 2),
        ("(AND " * 200, "query_syntax", None),
        ("x" * 9000, "query_syntax", None),
        (f"(gt {EX}minutes 1)", "query_syntax", None),
        (f"(COUNT (COUNT {MANNS}))", "query_syntax", None),
        (f"(TC {MANNS} {EX}minutes 1995)", "query_syntax", None),
        (f"(JOIN {EX}director nobody)", "no_entities_found", None),
        (f"(JOIN `> }} #` {EX}mann)", "no_entities_found", None),
        ("`> ?p ?o } #`", "no_entities_found", None),
    ],
)
def test_a_form_that_cannot_be_executed_is_a_failure(expand, form, kind, position):
    result = expand(form)
    assert isinstance(result, Failure)
    assert result.kind == kind, result
    if position is not None:
        assert result.details == {"position": position}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"question": ""},
        {"question": "?", "form": 7},
        {"question": "?", "topics": "Heat"},
        {"question": "?", "topics": [["Heat"]]},
        {"question": "?", "topics": ["Heat"] * 17},
        {"question": "?", "operations": "join"},
        {"question": "?", "operations": [["join"]]},
        {"question": "?", "operations": ["fly"]},
        {"question": "?", "expansions": -1},
        {"question": "?", "return": 1},
    ],
)
def test_arguments_of_another_kind_are_refused(graphs, arguments):
    [result] = LocalGraphTools(graphs).execute("embedded", [Action("expand", arguments)])
    assert result.code == "KG_FORMAT_ERROR"


def test_a_form_of_almost_the_largest_size_is_not_expanded(expand_here):
    form = MANNS
    for _ in range(20):
        form = f"(AND {form} {EX}Film)"
    assert expand_here(form).details["expansions"] != []
    for _ in range(20):
        form = f"(AND {form} {EX}Film)"
    result = expand_here(form)
    assert (names(result), result.details["expansions"]) == (["ali", "heat", "miami"], [])


def test_a_subgraph_restricts_what_is_listed(expand_here):
    within = expand_here(None, f"{EX}heat", graph="about heat")
    assert listed(within, "start") == ["Film"]
    films = expand_here(MANNS, f"{EX}foxx", f"{EX}pacino", graph="about heat")
    assert (names(films), listed(films, "keep", "max")) == (["heat"], [])
    assert expand_here(None, f"{EX}foxx", graph="about heat", operations=["join"]).kind == "entity_not_in_kg"
    assert expand_here(MANNS, graph="none").kind == "sample_missing"


def test_a_query_that_is_killed_is_a_failure():
    with ExitStack() as opened:
        store, server = served(opened, TURTLE, deadline_s=0.5)

        def answer(request):
            if "COUNT" not in request.form["query"]:
                server.execute(request)

        expand = expanding(FixedGraphs({"slow": store}), "slow")
        server.answer_with(answer)
        result = expand(MANNS, f"{EX}foxx")
        assert (result.kind, result.code) == ("query_timeout", "KG_SERVER_ERROR")
        server.answer_with(server.execute)
        assert names(expand(MANNS, f"{EX}foxx")) == ["ali", "heat", "miami"]

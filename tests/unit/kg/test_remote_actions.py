"""The actions over a graph at an endpoint, and at a real Virtuoso: the same answers as embedded."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kbqa.kg.actions import Action, Success
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.endpoint.record import Endpoint, ServerKind
from kbqa.kg.tools import LocalGraphTools
from tests.opened_graphs import attached, loaded, served
from tests.sparql_servers import Virtuoso

EX = "http://ex.org/"
TURTLE = """
@prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:big rdfs:label "Big"@en ; a :Film ; :starred :tom ; :released 1988 .
:philadelphia rdfs:label "Philadelphia"@en ; a :Film ; :starred :tom , :denzel .
:tom rdfs:label "Tom Hanks"@en ; a :Actor ; :born :concord .
:denzel a :Actor .
:concord :in :california .
:Film rdfs:label "motion picture"@en . :starred rdfs:label "starred actor"@en .
"""
QUERY = "PREFIX : <http://ex.org/> SELECT DISTINCT ?x WHERE { :big :starred ?x }"


@pytest.fixture(
    scope="module", params=["embedded", "endpoint", pytest.param("virtuoso", marks=pytest.mark.integration)]
)
def act(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("graph")
    with ExitStack() as opened:
        store = {"embedded": embedded, "endpoint": endpoint, "virtuoso": virtuoso}[request.param](
            directory, opened
        )
        tools = LocalGraphTools(FixedGraphs({"films": store}), deadline_s=60)

        def act(name, **arguments):
            [result] = tools.execute("films", [Action(name, arguments)])
            return result

        yield act


def embedded(directory, opened):
    return loaded(opened, directory, "films", TURTLE).get("films")


def endpoint(directory, opened):
    return served(opened, TURTLE)[0]


def virtuoso(directory, opened):
    if missing := Virtuoso.missing():
        pytest.skip(missing)
    server = Virtuoso(directory)
    opened.callback(server.kill)
    (directory / "graph.ttl").write_text(TURTLE)
    server.load(directory / "graph.ttl", f"{EX}graph")
    return attached(opened, Endpoint(server.url, (f"{EX}graph",), ServerKind.VIRTUOSO, deadline_s=60))


def short(text):
    return text.removeprefix(EX)


def test_a_query_s_rows_have_ids_and_labels(act):
    [row] = act("execute_sparql", query=QUERY).items
    assert (row["x"]["id"], row["x"]["label"]) == (f"{EX}tom", "Tom Hanks")
    assert act("execute_sparql", query="ASK { <http://ex.org/big> ?r ?y }").details == {"boolean": True}
    assert act("execute_sparql", query="SELECT ?x WHERE { ?x ?r }").kind == "query_syntax"


def test_patterns_are_the_same_wherever_the_graph_is(act):
    result = act("search_graph_patterns", sparql=QUERY, limit=50)
    found = {(i["direction"], *(short(r["id"]) for r in i["relations"])) for i in result.items}
    own = {relation for relation in found if len(relation) == 2}
    assert {("out", "born"), ("in", "starred")} < own
    assert ("out", "born", "in") in found
    assert len(found) == result.total == 5
    best = act("search_graph_patterns", sparql=QUERY, semantic="in california, born", limit=1).items[0]
    assert [short(relation["id"]) for relation in best["relations"]] == ["born", "in"]
    assert short(best["example"]["id"]) == "california"


def test_relations_of_a_node_are_the_same_wherever_the_graph_is(act):
    by_id = act("node_relations", node=f"{EX}tom", question="where was he born?", limit=50)
    by_label = act("node_relations", node="Tom Hanks", question="where was he born?", limit=50)
    by_query = act("node_relations", node="?x", query=QUERY, question="where was he born?", limit=50)
    assert by_id.items == by_label.items == by_query.items
    assert by_id.items[0]["line"] == f"<node> {EX}born ?a"
    assert by_id.total == 5


def test_distances_are_the_same_wherever_the_graph_is(act):
    for a, b, edges in (("Big", "Philadelphia", 2), ("Big", f"{EX}california", 3), ("Big", "1988", 1)):
        assert act("entity_distance", set_a=[a], set_b=[b]).details["distance"] == edges
    assert act("entity_distance", set_a=["Big"], set_b=["none"]).kind == "entity_not_in_kg"


def test_many_names_are_resolved_wherever_the_graph_is(act):
    names = ["Big", f"{EX}tom", "1988", "none", "Big"]
    entities = act("resolve_names", names=names).details["entities"]
    assert list(entities) == ["Big", f"{EX}tom", "1988"]
    assert entities["Big"] == [{"id": f"{EX}big", "label": "Big"}]
    assert entities[f"{EX}tom"] == [{"id": f"{EX}tom", "label": "Tom Hanks"}]
    assert [value["label"] for value in entities["1988"]] == ["1988"]


def test_paths_are_followed_wherever_the_graph_is(act):
    result = act("follow_path", entity="Big", path=["starred actor", "^starred actor"], question="born?")
    assert [(item.id, item.label) for item in result.items] == [(f"{EX}philadelphia", "Philadelphia")]
    assert result.details["via"] == [[f"{EX}big", f"{EX}tom"]]
    told = {(short(r["id"]), r["label"], r["direction"]) for r in result.details["relations"]}
    assert ("starred", "starred actor", "out") in told
    assert result.details["relations_total"] == len(told) == 3
    best = act("follow_path", entity="Tom Hanks", path=[], question="where was he born?", relations=1)
    [relation] = best.details["relations"]
    assert (short(relation["id"]), relation["direction"]) == ("born", "out")
    assert best.details["relations_total"] == 4
    lost = act("follow_path", entity="Big", path=["starred actor", f"^{EX}born"])
    assert (lost.code, lost.message) == (
        "KG_NO_RESULTS",
        f'No entities found for path "starred actor / ^{EX}born" from "Big" in knowledge graph',
    )


def test_an_endpoint_is_sent_a_path_and_not_the_sets_on_it():
    with ExitStack() as opened:
        facts = "\n".join(f":hub :links :n{n} . :n{n} :on :m{n % 7} ." for n in range(3000))
        store, server = served(opened, f"@prefix : <{EX}> . {facts}")
        tools = LocalGraphTools(FixedGraphs({"hub": store}), deadline_s=60)
        path = [f"{EX}links", f"{EX}on", f"^{EX}on"]
        [result] = tools.execute("hub", [Action("follow_path", {"entity": f"{EX}hub", "path": path})])
        assert (result.total, len(result.items), len(result.details["via"])) == (3000, 1000, 50)
        assert len(server.requests) <= 6
        assert max(len(request["query"]) for request in server.requests) < 30_000


def test_types_are_searched_wherever_the_graph_is(act):
    result = act("search_types", query="motion picture")
    assert (short(result.items[0].id), result.items[0].score, result.total) == ("Film", 1.0, 2)


def test_an_entity_is_described_wherever_the_graph_is(act):
    [found] = act("describe", entity="Tom Hanks").items
    assert (found["id"], found["types"]) == (f"{EX}tom", [{"id": f"{EX}Actor", "label": f"{EX}Actor"}])
    assert (found["tail"]["relations"], found["tail"]["edges"]) == (3, 3)
    assert (found["head"]["relations"], found["head"]["edges"]) == (1, 2)


def test_an_endpoint_is_not_asked_more_the_more_relations_an_entity_has():
    with ExitStack() as opened:
        facts = "\n".join(f":hub :relation{n} :n{n} . :n{n} :on :m{n} ." for n in range(60))
        store, server = served(opened, f"@prefix : <{EX}> . {facts}")
        tools = LocalGraphTools(FixedGraphs({"hub": store}), deadline_s=600)
        asked = {"node": f"{EX}hub", "question": "relation7", "limit": 100}
        [result] = tools.execute("hub", [Action("node_relations", asked)])
        # All relations of the hub, and what follows the 16 that are most like the question.
        assert (result.total, result.truncated) == (60 + 16, True)
        assert result.items[0]["line"] == f"<node> {EX}relation7 ?a"
        assert f"<node> {EX}relation7 ?a . ?a {EX}on ?b" in {item["line"] for item in result.items}
        assert len(server.requests) < 40
        before = len(server.requests)
        [found] = tools.execute("hub", [Action("describe", {"entity": f"{EX}hub"})])[0].items
        assert (found["tail"]["relations"], found["tail"]["edges"], found["tail"]["truncated"]) == (
            60,
            16,
            True,
        )
        assert len(server.requests) - before < 30


@pytest.mark.parametrize(("hub_relations", "followed"), [(5, 5), (60, 60)])
def test_the_relations_that_are_followed_are_bounded_by_the_record(hub_relations, followed):
    with ExitStack() as opened:
        facts = "\n".join(f":hub :relation{n} :n{n} . :n{n} :on :m{n} ." for n in range(60))
        store, server = served(opened, f"@prefix : <{EX}> . {facts}", hub_relations=hub_relations)
        tools = LocalGraphTools(FixedGraphs({"hub": store}), deadline_s=600)
        asked = {"node": f"{EX}hub", "question": "relation7", "limit": 200}
        [result] = tools.execute("hub", [Action("node_relations", asked)])
        assert (result.total, result.truncated) == (60 + followed, followed < 60)


def test_the_neighbours_behind_a_relation_are_bounded_by_the_record():
    with ExitStack() as opened:
        facts = "\n".join(f":hub :links :n{n} . :n{n} :on{n} :m{n} ." for n in range(9))
        store, server = served(opened, f"@prefix : <{EX}> . {facts}", hub_neighbours=4)
        tools = LocalGraphTools(FixedGraphs({"hub": store}), deadline_s=600)
        [result] = tools.execute("hub", [Action("node_relations", {"node": f"{EX}hub", "question": "on"})])
        assert (result.total, result.truncated) == (1 + 4, True)


def test_a_graph_may_have_a_deadline_of_its_own_for_queries():
    with ExitStack() as opened:
        patient, _ = served(opened, TURTLE, query_deadline_s=60)
        tools = LocalGraphTools(FixedGraphs({"films": patient}), deadline_s=1e-6)
        assert isinstance(tools.execute("films", [Action("execute_sparql", {"query": QUERY})])[0], Success)
        hasty, _ = served(opened, TURTLE)
        tools = LocalGraphTools(FixedGraphs({"films": hasty}), deadline_s=1e-6)
        assert tools.execute("films", [Action("execute_sparql", {"query": QUERY})])[0].kind == "query_timeout"

"""Relations around nodes: KnowCoder-A1's patterns, ISP-KGR's node relations, and the search behind both."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kg.actions import Action, Failure, Item
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.ranking.ranker import Ranker
from kbqa.kg.retrieval.graph_patterns import PatternPath, paths_around
from kbqa.kg.retrieval.node_relations import line
from kbqa.kg.tools import LocalGraphTools

TRIPLES = [
    ("Big", "starred", "Tom Hanks"),
    ("Big", "directed by", "Penny Marshall"),
    ("Philadelphia", "starred", "Tom Hanks"),
    ("Tom Hanks", "born in", "Concord"),
    ("Concord", "located in", "California"),
    ("Festival", "showed", "Big"),
    ("Meg Ryan", "born in", "Fairfield"),
]


def e(name):
    return f"<urn:kbqa:e:{name.replace(' ', '%20')}>"


def r(name):
    return f"<urn:kbqa:r:{name.replace(' ', '%20')}>"


@pytest.fixture(scope="module")
def act():
    tools = LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}))

    def act(name, **arguments):
        [result] = tools.execute("films", [Action(name, arguments)])
        return result

    return act


@pytest.fixture(scope="module")
def search(act):
    return lambda sparql, **arguments: act("search_graph_patterns", sparql=sparql, **arguments)


@pytest.fixture(scope="module")
def relations(act):
    return lambda node, question="where?", **arguments: act(
        "node_relations", node=node, question=question, **arguments
    )


def pattern(item):
    return item["direction"], [rel["id"] for rel in item["relations"]], item["example"]["id"]


@pytest.mark.parametrize("variable", ["x", "e"])
def test_the_patterns_around_a_variable(search, variable):
    result = search(f"SELECT DISTINCT ?{variable} WHERE {{ VALUES ?{variable} {{ {e('Tom Hanks')} }} }}")
    assert [pattern(item) for item in result.items] == [
        ("out", ["born in"], "Concord"),
        ("in", ["starred"], "Big"),
        ("out", ["born in", "located in"], "California"),
        ("in", ["showed", "starred"], "Festival"),
    ]
    assert {item["score"] for item in result.items} == {None}
    assert (result.total, result.truncated, result.details) == (4, False, {"variable": f"?{variable}"})


def test_the_semantics_rank_the_patterns(search):
    query = f"SELECT ?x WHERE {{ {e('Big')} {r('starred')} ?x }}"
    result = search(query, semantic="located in")
    assert pattern(result.items[0]) == ("out", ["born in", "located in"], "California")
    assert search(query, semantic="born in").items[0]["score"] == 1.0
    scores = [item["score"] for item in result.items]
    assert scores == sorted(scores, reverse=True)


def test_patterns_are_those_of_every_value(search):
    result = search(f"SELECT DISTINCT ?x WHERE {{ {e('Big')} ?r ?x }} ORDER BY ?x")
    assert ("in", ["directed by"], "Big") in [pattern(item) for item in result.items]
    assert ("out", ["born in"], "Concord") in [pattern(item) for item in result.items]
    one = search(f"SELECT DISTINCT ?x WHERE {{ {e('Big')} ?r ?x }} ORDER BY ?x LIMIT 1")
    assert [pattern(item)[1] for item in one.items] == [["directed by"], ["showed", "directed by"]]


def test_ten_patterns_at_most_unless_more_are_asked_for():
    store = OxigraphStore.from_triples(("hub", f"relation {n:02}", f"n{n}") for n in range(30))
    tools = LocalGraphTools(FixedGraphs({"hub": store}))
    sparql = "SELECT ?e WHERE { VALUES ?e { <urn:kbqa:e:hub> } }"
    arguments = [{}, {"limit": 20}, {"offset": 25}]
    results = tools.execute(
        "hub", [Action("search_graph_patterns", {"sparql": sparql, **a}) for a in arguments]
    )
    assert [(len(result.items), result.total, result.truncated) for result in results] == [
        (10, 30, True),
        (20, 30, True),
        (5, 30, False),
    ]


def test_an_example_is_no_way_back_if_there_is_another():
    store = OxigraphStore.from_triples([("a", "child", "b"), ("b", "parent", "a"), ("b", "parent", "z")])
    tools = LocalGraphTools(FixedGraphs({"toy": store}))
    sparql = "SELECT ?e WHERE { VALUES ?e { <urn:kbqa:e:a> } }"
    [result] = tools.execute("toy", [Action("search_graph_patterns", {"sparql": sparql})])
    assert ("out", ["child", "parent"], "z") in [pattern(item) for item in result.items]


@pytest.mark.parametrize(
    ("sparql", "kind", "reason"),
    [
        ("SELECT ?y WHERE { ?y ?r ?z }", "query_refused", "no_pattern_variable"),
        ("SELECT (COUNT(?x) AS ?n) WHERE { ?x ?r ?z }", "query_refused", "no_pattern_variable"),
        ("SELECT * WHERE { ?x ?r ?z }", "query_refused", "no_pattern_variable"),
        ("SELECT ?x WHERE { ?y ?r ?z }", "query_refused", "unused_variable"),
        (f"SELECT ?x WHERE {{ ?x {r('none')} ?z }}", "no_entities_found", "no_values"),
        ("SELECT ?x", "query_syntax", None),
        ("SELECT ?x WHERE { ?x ?r ?y", "query_syntax", None),
        ("SELECT ?x WHERE { ?x ?r }", "query_syntax", None),
        ("ASK { ?x ?r ?y }", "query_syntax", None),
        ("SELECT ?x WHERE { SERVICE <http://h/> { ?x ?r ?y } }", "query_refused", None),
    ],
)
def test_a_failed_search_says_why(search, sparql, kind, reason):
    result = search(sparql)
    assert isinstance(result, Failure)
    assert (result.kind, result.details.get("reason")) == (kind, reason)


def test_the_relations_of_an_entity_by_the_templates(relations):
    result = relations("Tom Hanks", limit=20)
    assert {item["line"] for item in result.items} == {
        "<node> born in ?a",
        "<node> born in ?a . ?a located in ?b",
        "?a starred <node>",
        "?a starred <node> . ?b showed ?a",
    }
    assert (result.total, result.truncated) == (4, False)


def test_lines_are_ranked_by_the_question_and_come_with_their_parts(relations):
    result = relations("Tom Hanks", "which festival showed a film that starred Tom Hanks?", limit=1)
    [best] = result.items
    assert best["line"] == "?a starred <node> . ?b showed ?a"
    assert [relation["id"] for relation in best["relations"]] == ["starred", "showed"]
    assert (best["direction"], result.total, result.truncated) == ("in", 4, True)


@pytest.mark.parametrize("node", ["?actor", "$actor", " ?actor "])
def test_a_variable_stands_for_its_values_in_the_query(relations, node):
    # Returned by the query, or only passed through.
    for clause in ("?actor", "?place", "*", "DISTINCT ?place ?actor", "(COUNT(?place) AS ?n)"):
        tail = " GROUP BY ?b" if "COUNT" in clause else " LIMIT 5"
        facts = f"{e('Big')} {r('starred')} ?actor . ?actor {r('born in')} ?place"
        query = f"SELECT {clause} WHERE {{ {facts} }}{tail}"
        result = relations(node, query=query, limit=20)
        assert "<node> born in ?a . ?a located in ?b" in {item["line"] for item in result.items}, clause
        assert result.total == 4


def test_prefixes_and_limits_of_the_query_hold(relations):
    query = (
        "PREFIX r: <urn:kbqa:r:> SELECT ?who WHERE { ?who r:born%20in ?where } ORDER BY DESC(?where) LIMIT 1"
    )
    assert relations("?who", query=query).total == 1
    assert relations("?where", query=query).total == 4 - 1


@pytest.mark.parametrize(
    ("node", "arguments", "kind"),
    [
        ("Nobody", {}, "entity_not_in_kg"),
        ("?x", {}, "missing_required_fields"),
        ("?x", {"query": "SELECT ?y WHERE { ?y ?r ?z }"}, "entity_not_in_kg"),
        ("?x", {"query": "SELECT ?x WHERE { ?x <urn:kbqa:r:none> ?z }"}, "no_entities_found"),
        ("?x", {"query": "SELECT ?x WHERE { ?x"}, "query_syntax"),
        ("?x", {"query": "SELECT ?x WHERE { ?x ?r }"}, "query_syntax"),
        ("?x", {"query": ""}, "missing_required_fields"),
    ],
)
def test_a_node_that_stands_for_nothing_is_a_failure(relations, node, arguments, kind):
    assert relations(node, **arguments).kind == kind


def test_a_value_of_the_query_that_is_not_in_the_graph_has_no_relations(relations):
    result = relations("?n", query="SELECT (COUNT(?x) AS ?n) WHERE { ?x ?r ?y }")
    assert (result.code, result.kind) == ("KG_NO_RESULTS", "no_relations_found")


def test_entities_and_literals_may_both_end_a_path(tmp_path):
    file = tmp_path / "graph.ttl"
    file.write_text(
        """
        @prefix : <http://ex.org/> .
        :tom :height 183 ; :born :concord . :concord :population 122067 ; :in :california .
        """
    )
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("rdf", file)
    tools = LocalGraphTools(catalog)
    [result] = tools.execute(
        "rdf", [Action("node_relations", {"node": "http://ex.org/tom", "question": "height", "limit": 20})]
    )
    named = {item["line"].replace("http://ex.org/", ":") for item in result.items}
    assert named == {
        "<node> :height ?a",
        "<node> :born ?a",
        "<node> :born ?a . ?a :population ?b",
        "<node> :born ?a . ?a :in ?b",
    }
    assert result.items[0]["line"] == "<node> http://ex.org/height ?a"
    catalog.close()


@pytest.fixture(scope="module")
def ranker():
    return Ranker(NgramEncoder(), list)


def test_beyond_a_hub_some_neighbours_are_followed_and_the_result_says_so(ranker):
    triples = [("hub", "links", f"n{n:03}") for n in range(200)]
    triples += [(f"n{n:03}", f"r{n:03}", "end") for n in range(200)]
    store = OxigraphStore.from_triples(triples)
    paths = paths_around(store, ["hub"], ranker, "", deadline_s=60)
    assert len(paths.found) == 1 + 50
    assert (paths.complete, paths.in_time) == (False, True)


def test_of_very_many_relations_those_that_the_text_means_are_followed(ranker):
    triples = [("hub", f"relation number {n}", f"n{n}") for n in range(100)]
    triples += [("hub", "zzz capital city", "z"), ("z", "population", "7")]
    store = OxigraphStore.from_triples(triples)
    paths = paths_around(store, ["hub"], ranker, "the capital city", deadline_s=60)
    assert len(paths.found) == 101 + 1
    assert not paths.complete


def test_a_search_that_is_out_of_time_says_so(ranker):
    store = OxigraphStore.from_triples(TRIPLES)
    paths = paths_around(store, ["Tom Hanks"], ranker, "", deadline_s=0)
    assert [path.relations[0].id for path in paths.found] == ["born in", "starred"]
    assert (paths.complete, paths.in_time) == (False, False)


def test_a_line_shows_the_node_where_it_was_asked_for():
    one, two = Item("r", "r"), Item("s", "s")
    assert line(PatternPath((one,), outgoing=True)) == "<node> r ?a"
    assert line(PatternPath((one,), outgoing=False)) == "?a r <node>"
    assert line(PatternPath((one, two), outgoing=True)) == "<node> r ?a . ?a s ?b"
    assert line(PatternPath((one, two), outgoing=False)) == "?a r <node> . ?b s ?a"


NODES = [f"{n}" for n in range(15)]


@pytest.fixture(scope="module", params=range(3), ids=lambda seed: f"graph{seed}")
def random_graph(request):
    draw = random.Random(request.param)
    triples = {(draw.choice(NODES), draw.choice("rstu"), draw.choice(NODES)) for _ in range(25)}
    return OxigraphStore.from_triples(triples), triples


@settings(max_examples=50, deadline=None)
@given(nodes=st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True))
def test_paths_are_those_that_the_templates_match(random_graph, ranker, nodes):
    store, triples = random_graph
    expected = set()
    for head, r1, tail in triples:
        if head in nodes:
            expected |= {((r1,), True)} | {((r1, r2), True) for s, r2, _ in triples if s == tail}
        if tail in nodes:
            expected |= {((r1,), False)} | {((r1, r2), False) for _, r2, o in triples if o == head}
    paths = paths_around(store, nodes, ranker, "", deadline_s=60)
    found = [(tuple(relation.id for relation in path.relations), path.outgoing) for path in paths.found]
    assert set(found) == expected
    assert len(found) == len(expected)
    assert paths.complete

"""Paths over graphs drawn by hand, and against a walk that scans all triples."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kg.actions import Action, ErrorKind, Failure, Item
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded import walks
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.indexing import IndexBuilder
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.store import PathStep
from kbqa.kg.subgraphs import Seed, SubgraphWriter
from kbqa.kg.tools import LocalGraphTools

# Heat -directed-> Mann <-directed- Ali, Blackhat; Heat, Ali -starred-> …; an island of one film.
TRIPLES = [
    ("Heat", "directed", "Mann"),
    ("Ali", "directed", "Mann"),
    ("Blackhat", "directed", "Mann"),
    ("Heat", "starred", "Pacino"),
    ("Heat", "starred", "De Niro"),
    ("Ali", "starred", "Smith"),
    ("Big", "directed", "Marshall"),
    ("Marshall", "knows", "Marshall"),
    ("Marshall", "knows", "Mann"),
]


def following(store):
    tools = LocalGraphTools(FixedGraphs({"toy": store}))

    def follow(entity, *path, graph=None, **arguments):
        action = Action("follow_path", {"entity": entity, "path": list(path), **arguments})
        [result] = tools.execute("toy", [action], graph=graph)
        return result

    return follow


@pytest.fixture(scope="module")
def follow():
    return following(OxigraphStore.from_triples(TRIPLES))


def names(result):
    assert not isinstance(result, Failure), result
    return [item.id for item in result.items]


def relations(result):
    return [(told["id"], told["direction"]) for told in result.details["relations"]]


def test_an_empty_path_stays_at_the_entity_and_lists_its_relations(follow):
    result = follow("Mann")
    assert result.items == (Item("Mann", "Mann"),)
    assert relations(result) == [("directed", "in"), ("knows", "in")]
    assert result.details["relations"][0] == {"id": "directed", "label": "directed", "direction": "in"}
    assert (result.details["relations_total"], result.details["via"]) == (2, [[]])
    assert (result.total, result.truncated) == (1, False)


def test_a_path_goes_on_from_all_that_it_found(follow):
    one = follow("Heat", "directed")
    assert (names(one), one.details["via"]) == (["Mann"], [["Heat"]])
    other_casts = follow("Heat", "directed", "^directed", "starred")
    assert (names(other_casts), relations(other_casts)) == (["Smith"], [("starred", "in")])
    assert other_casts.details["via"] == [["Heat", "Mann", "Ali"]]


def test_relations_both_ways_come_by_label_then_direction(follow):
    assert relations(follow("Heat", "directed", "^directed")) == [("directed", "out"), ("starred", "out")]
    assert relations(follow("Big", "directed")) == [("directed", "in"), ("knows", "in"), ("knows", "out")]


def test_the_start_is_left_out_where_the_path_comes_back_to_it(follow):
    assert names(follow("Heat", "directed", "^directed")) == ["Ali", "Blackhat"]
    assert names(follow("Heat", "directed", "^directed", **{"return": True})) == ["Ali", "Blackhat", "Heat"]
    # In the middle, too: nobody is an actor of the other films because he is one of this.
    assert names(follow("Heat", "directed", "^directed", "starred", **{"return": True})) == [
        "De Niro",
        "Pacino",
        "Smith",
    ]


def test_the_start_stays_where_nothing_else_is(follow):
    assert names(follow("Big", "directed", "^directed")) == ["Big"]
    assert names(follow("Big", "directed", "^directed", "directed")) == ["Marshall"]


def test_a_loop_at_the_start_is_a_fact_like_others(follow):
    assert names(follow("Marshall", "knows")) == ["Mann", "Marshall"]
    result = follow("Marshall", "knows", "knows")
    assert (names(result), result.details["via"]) == (["Mann"], [["Marshall", "Marshall"]])


def test_items_come_in_pages_with_their_own_ways(follow):
    result = follow("Mann", "^directed", "starred", limit=2, offset=1)
    assert (names(result), result.total, result.truncated) == (["Pacino", "Smith"], 3, False)
    assert result.details["via"] == [["Mann", "Heat"], ["Mann", "Ali"]]
    assert follow("Mann", "^directed", "starred", limit=2).truncated
    assert relations(result) == [("starred", "in")]
    assert follow("Mann", "^directed", "starred", limit=2, offset=9).items == ()


@pytest.mark.parametrize(
    ("entity", "path", "kind", "message"),
    [
        ("Haet", ["directed"], "entity_not_in_kg", 'Entity "Haet" not found in KG'),
        ("Heat", ["directed", "^made"], "invalid_relation", 'Relation "made" not found in KG'),
        ("Heat", ["^"], "invalid_relation", 'Relation "" not found in KG'),
        (
            "Heat",
            ["directed", "^starred"],
            "no_entities_found",
            'No entities found for path "directed / ^starred" from "Heat" in knowledge graph',
        ),
    ],
)
def test_failures_say_what_the_graph_lacks(follow, entity, path, kind, message):
    result = follow(entity, *path)
    assert (result.kind, result.message) == (kind, message)


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": []},
        {"entity": "Heat"},
        {"entity": "Heat", "path": "directed"},
        {"entity": "Heat", "path": ["directed"] * 9},
        {"entity": "Heat", "path": [7]},
        {"entity": "Heat", "path": [""]},
        {"entity": "Heat", "path": [["directed"]]},
        {"entity": ["Heat"], "path": []},
        {"entity": "Heat", "path": [], "relations": -1},
        {"entity": "Heat", "path": [], "relations": True},
        {"entity": "Heat", "path": [], "question": 7},
        {"entity": "Heat", "path": [], "return": "yes"},
        {"entity": "Heat", "path": [], "relation": "directed"},
        {"entity": "Heat", "path": [], "limit": 0},
    ],
)
def test_arguments_of_another_kind_are_refused(follow, arguments):
    tools = LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples(TRIPLES)}))
    [result] = tools.execute("toy", [Action("follow_path", arguments)])
    assert result.code == "KG_FORMAT_ERROR"
    if arguments.get("path") == "directed":
        says = "path (a list of at most 8 texts)"
        assert result.message == f"Missing required fields for follow_path: {says}"


def test_eight_steps_are_followed():
    store = OxigraphStore.from_triples((f"n{n}", "next", f"n{n + 1}") for n in range(20))
    result = following(store)("n0", *["next"] * 8)
    assert (names(result), result.details["via"]) == (["n8"], [[f"n{n}" for n in range(8)]])


@pytest.fixture(scope="module")
def hub():
    """An entity with 10,000 relations, one of which a question means."""
    named = [f"relation {n}" for n in range(9_999)]
    store = OxigraphStore.from_triples(
        [*(("hub", name, f"n{number}") for number, name in enumerate([*named, "place of birth"]))]
    )
    return following(store)


def test_of_ten_thousand_relations_those_that_fit_the_question_are_listed(hub):
    result = hub("hub", question="what is the place of his birth?", relations=5)
    best, *others = result.details["relations"]
    assert (best["id"], best["direction"], len(others)) == ("place of birth", "out", 4)
    scores = [told["score"] for told in result.details["relations"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[1]
    assert result.details["relations_total"] == 10_000
    by_way = hub("n7", "^relation 7", question="place of birth", relations=1)
    assert relations(by_way) == [("place of birth", "out")]


def test_without_a_question_the_first_relations_are_listed_without_scores(hub):
    result = hub("hub", relations=2)
    assert result.details["relations"] == [
        {"id": id_, "label": id_, "direction": "out"} for id_ in ("place of birth", "relation 0")
    ]
    assert len(hub("hub").details["relations"]) == 1000
    assert hub("hub", relations=0).details["relations"] == []
    assert "score" not in hub("n7", question="place").details["relations"][0]


def test_both_directions_of_a_relation_have_its_score():
    triples = [("a", "knows", "b"), ("b", "knows", "a"), ("b", "likes", "a"), ("b", "sees", "a")]
    result = following(OxigraphStore.from_triples(triples))("a", question="who knows?", relations=2)
    assert relations(result) == [("knows", "in"), ("knows", "out")]
    assert result.details["relations"][0]["score"] == result.details["relations"][1]["score"]


def test_a_set_that_is_too_large_is_cut_and_says_so(monkeypatch):
    monkeypatch.setattr("kbqa.kg.embedded.adjacency.MAX_FRONTIER", 1000)
    triples = [("hub", "links", f"n{n:05}") for n in range(1500)]
    triples += [(f"n{n:05}", "on", f"m{n:05}") for n in range(1500)]
    follow = following(OxigraphStore.from_triples(triples))
    one, two = follow("hub", "links", limit=3), follow("hub", "links", "on", limit=3)
    assert (names(one), one.total, one.truncated) == (["n00000", "n00001", "n00002"], 1000, True)
    assert (names(two), two.total, two.truncated) == (["m00000", "m00001", "m00002"], 1000, True)
    assert two.details["via"] == [["hub", "n00000"], ["hub", "n00001"], ["hub", "n00002"]]
    # The start does not count where it is left out.
    back = follow("n00003", "^links", "links", limit=1)
    assert (names(back), back.total, back.truncated) == (["n00000"], 1000, True)


def test_a_hop_over_too_many_edges_is_cut_and_says_so(monkeypatch):
    triples = [("start", "to", f"hub{n}") for n in range(3)]
    triples += [(f"hub{h}", "links", f"n{h}{n:05}") for h in range(3) for n in range(400)]
    follow = following(OxigraphStore.from_triples(triples))
    assert follow("start", "to", "links").total == 1200
    monkeypatch.setattr(walks, "MAX_EDGES", 900)
    result = follow("start", "to", "links")
    assert (result.total, result.truncated) == (800, True)


def test_the_first_fifty_items_have_ways(follow):
    store = OxigraphStore.from_triples(("hub", "links", f"n{n:03}") for n in range(80))
    result = following(store)("hub", "links")
    assert (len(result.items), result.details["via"]) == (80, [["hub"]] * 50)


RDF = """
@prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:p1 rdfs:label "Paris" ; :in :texas . :p2 rdfs:label "Paris" ; :in :france .
:in rdfs:label "located in" . :within rdfs:label "located in" . :p1 :within :usa .
:texas :founded 1845 ; rdfs:label "Texas"@en . :iowa :founded 1845 .
"""
EX = "http://ex.org/"


@pytest.fixture(scope="module")
def rdf(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rdf")
    (directory / "graph.ttl").write_text(RDF)
    catalog = GraphCatalog(directory / "home")
    catalog.load("rdf", directory / "graph.ttl")
    yield following(catalog.get("rdf"))
    catalog.close()


def test_labels_stand_for_all_that_bear_them(rdf):
    result = rdf("Paris", "located in")
    assert {item.id.removeprefix(EX) for item in result.items} == {"texas", "france", "usa"}
    via = dict(zip(names(result), result.details["via"], strict=True))
    assert via == {f"{EX}texas": [f"{EX}p1"], f"{EX}france": [f"{EX}p2"], f"{EX}usa": [f"{EX}p1"]}
    # Neither of the two is left over where each is a start.
    assert rdf("Paris", "located in", "^located in", **{"return": True}).total == 2
    assert rdf("Paris", "located in", "^located in").total == 2


def test_literals_are_nodes_on_the_way(rdf):
    result = rdf("Texas", f"{EX}founded", f"^{EX}founded")
    year = '"1845"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert (names(result), result.details["via"]) == ([f"{EX}iowa"], [[f"{EX}texas", year]])
    at_year = rdf("1845")
    assert (names(at_year), relations(at_year)) == ([year], [(f"{EX}founded", "in")])
    assert rdf("1845", f"{EX}founded").kind == ErrorKind.NO_ENTITIES_FOUND


def test_dated_facts_lead_on_as_others_do(tmp_path):
    (tmp_path / "facts").write_text(
        "a\tvisits\tb\t2014-01-01\na\tvisits\tb\t2014-02-01\nb\tvisits\tc\t2015\n"
    )
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("dated", tmp_path / "facts")
    result = following(catalog.get("dated"))("a", "visits", "visits")
    assert (result.items, result.details["via"]) == ((Item("c", "c"),), [["a", "b"]])
    catalog.close()


def test_a_subgraph_restricts_the_walk_and_what_it_lists(tmp_path):
    (tmp_path / "films").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    catalog.load("toy", tmp_path / "films")

    def write(store, directory):
        with SubgraphWriter(store, directory, source="asked", seed=Seed.TOPICS, hops=1) as writer:
            writer.add_search("q", ["Mann"])
            return writer.finish()

    catalog.add_subgraphs("toy", write)
    follow = following(catalog.get("toy"))
    assert names(follow("Heat", "directed", "^directed", graph="q")) == ["Ali", "Blackhat"]
    assert relations(follow("Heat", "directed", "^directed", graph="q")) == [("directed", "out")]
    assert follow("Heat", "starred", graph="q").kind == ErrorKind.INVALID_RELATION
    assert follow("Big", graph="q").kind == ErrorKind.ENTITY_NOT_IN_KG
    assert follow("Heat", graph="none").kind == ErrorKind.SAMPLE_MISSING
    catalog.close()


NODES = [f"{n}" for n in range(12)]
STEPS = st.tuples(st.sets(st.sampled_from("rst"), min_size=1, max_size=2), st.booleans())


def indexed(triples):
    builder = IndexBuilder(named=False)
    for triple in triples:
        builder.add(*triple)
    with tempfile.TemporaryDirectory() as directory:
        builder.write(Path(directory))
        return Adjacency(Path(directory))


def walked(triples, starts, steps, returning):
    """The same by scanning: the set at the end."""
    found = set(starts)
    for number, (links, inverse) in enumerate(steps):
        pairs = {(o, s) if inverse else (s, o) for s, r, o in triples if r in links}
        found = {there for here, there in pairs if here in found}
        if number and not returning:
            found = found - set(starts) or found
    return found


@settings(max_examples=80, deadline=None)
@given(
    triples=st.lists(
        st.tuples(st.sampled_from(NODES), st.sampled_from("rst"), st.sampled_from(NODES)),
        min_size=1,
        max_size=40,
    ),
    starts=st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True),
    steps=st.lists(STEPS, max_size=4),
    returning=st.booleans(),
    few=st.booleans(),
)
def test_a_walk_finds_what_scanning_finds(triples, starts, steps, returning, few):
    with pytest.MonkeyPatch.context() as patch:
        if not few:
            patch.setattr(walks, "_FEW", 0)
        store = indexed(triples)
        starts = [start for start in starts if store.resolve_entity(start)]
        path = [PathStep(tuple(sorted(links)), inverse) for links, inverse in steps]
        walk = store.follow(starts, path, limit=99, returning=returning)
    ends = walked(triples, starts, steps, returning)
    assert [item.id for item in walk.ends.items] == sorted(ends)
    assert [item.id for item in walk.out] == sorted({r for s, r, _ in triples if s in ends})
    assert [item.id for item in walk.into] == sorted({r for _, r, o in triples if o in ends})
    for via, item in zip(walk.vias, walk.ends.items, strict=True):
        assert len(via) == len(steps)
        assert not via or via[0] in starts
        nodes = [*via, item.id]
        for (links, inverse), here, there in zip(steps, nodes, nodes[1:], strict=False):
            assert any(((there, r, here) if inverse else (here, r, there)) in triples for r in links)

"""Per-question subgraphs, against a naive reference; what they know, and what they refuse."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbqa.errors import GraphNotFoundError, QueryRefusedError
from kbqa.kg.actions import Action, ErrorCode
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.indexing import IndexBuilder
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.subgraphs import Seed, Subgraphs, SubgraphWriter, write_set
from kbqa.kg.tools import LocalGraphTools

names = st.integers(0, 7).map(str)
graphs = st.lists(st.tuples(names, st.sampled_from("rst"), names), min_size=1, max_size=30)


def index_of(directory, triples):
    builder = IndexBuilder(named=False)
    for triple in triples:
        builder.add(*triple)
    directory.mkdir()
    builder.write(directory)
    return Adjacency(directory)


def within(triples, seeds, hops):
    """What a breadth-first search meets, edge by edge."""
    found, frontier = set(), set(seeds)
    for _ in range(hops):
        met = {triple for triple in triples if triple[0] in frontier or triple[2] in frontier}
        found |= met
        frontier = {name for head, _, tail in met for name in (head, tail)}
    return found


def contents(graph, entities, relations):
    """Every triple that look-ups find, from both ends, each by its own entity and relation."""
    outward = {
        (head, link, tail.id)
        for head, link in product(entities, relations)
        for tail in graph.tail_entities([head], [link], limit=99).items
    }
    inward = {
        (head.id, link, tail)
        for tail, link in product(entities, relations)
        for head in graph.head_entities([tail], [link], limit=99).items
    }
    assert outward == inward
    return outward


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(graphs, st.lists(names, min_size=1, max_size=2), st.integers(1, 3), st.data())
def test_a_subgraph_is_what_a_naive_search_finds(tmp_path_factory, triples, seeds, hops, data):
    directory = tmp_path_factory.mktemp("graph")
    index = index_of(directory / "index", triples)
    given_triples = data.draw(st.lists(st.sampled_from(triples)))

    def search(target):
        with SubgraphWriter(index, target, source="x", seed=Seed.TOPICS, hops=hops) as writer:
            writer.add_search("search", seeds)
            writer.add_search("again", seeds)
            return writer.finish()

    def record(target):
        with SubgraphWriter(index, target, source="x", seed=Seed.GIVEN) as writer:
            writer.add_triples("given", [*given_triples, ("none", "r", "none")])
            return writer.finish()

    write_set(directory / "sets", search)
    write_set(directory / "sets", record)
    sets = Subgraphs(directory / "sets")
    everything = [str(n) for n in range(8)]
    for sample, expected in {
        "search": within(set(triples), seeds, hops),
        "again": within(set(triples), seeds, hops),
        "given": set(given_triples),
    }.items():
        graph = sets.get(sample, index, index)
        assert contents(graph, everything, "rst") == expected
        assert graph.triples == len(expected)
        members = {name for head, _, tail in expected for name in (head, tail)}
        assert {name for name in everything if graph.resolve_entity(name)} == members
        assert [item.id for item in graph.relations()] == sorted({link for _, link, _ in expected})
        for name in members:
            tails = [item.id for item in graph.tail_relations([name], limit=9).items]
            assert tails == sorted({link for head, link, _ in expected if head == name})
            near = {t for h, _, t in expected if h == name} | {h for h, _, t in expected if t == name}
            assert graph.adjacent([name]) == near
    assert sets.get("unknown", index, index) is None


@pytest.fixture
def catalog(tmp_path):
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    yield catalog
    catalog.close()


@pytest.fixture
def films(catalog, tmp_path):
    path = tmp_path / "films"
    path.write_text(
        "Big\tstarred\tTom Hanks\t1988\nBig\tgenre\tComedy\t1988\nCast Away\tstarred\tTom Hanks\t2000\n"
        "Airplane!\tgenre\tComedy\t1980\n"
    )
    return catalog.load("films", path)


def add(catalog, seed=Seed.TOPICS, hops=1, **questions):
    def write(store, directory):
        with SubgraphWriter(store, directory, source="asked", seed=seed, hops=hops) as writer:
            for sample, seeds in questions.items():
                writer.add_search(sample, seeds)
            return writer.finish()

    return catalog.add_subgraphs("films", write)


def test_actions_know_nothing_outside_the_subgraph(catalog, films):
    add(catalog, q1=["Big"])
    tools = LocalGraphTools(catalog)

    def ask(action, graph="q1", **arguments):
        return tools.execute("films", [Action(action, arguments)], graph=graph)[0]

    films_of_hanks = ask("get_head_entities", entity="Tom Hanks", relation="starred")
    assert [(item.id, item.times) for item in films_of_hanks.items] == [("Big", ("1988",))]
    assert ask("get_tail_relations", entity="Airplane!").code is ErrorCode.ENTITY_NOT_FOUND
    assert ask("get_tail_relations", graph="q2", entity="Big").code is ErrorCode.SAMPLE_NOT_FOUND
    assert ask("get_tail_relations", graph=None, entity="Airplane!").total == 1


def test_sparql_is_refused_rather_than_answered_from_the_whole_graph(catalog, films):
    add(catalog, q1=["Big"])
    with pytest.raises(QueryRefusedError, match="cannot be restricted"):
        catalog.get("films").subgraph("q1").query("ASK {}")


def test_subgraphs_make_a_version_and_leaks_are_in_its_name(catalog, films):
    held = catalog.get("films")
    assert held.subgraph("q1") is None
    add(catalog, q1=["Big"])
    second = catalog.get("films").version
    add(catalog, seed=Seed.TOPICS_AND_GOLD, q2=["Comedy"])
    third = catalog.get("films")
    assert len({films.version, second, third.version}) == 3
    assert not second.endswith("-leaking")
    assert third.version.endswith("-leaking")
    assert third.subgraph("q1") is not None
    assert held.subgraph("q1") is None
    assert held.query("ASK { ?s ?p ?o }").rows == 1
    assert [(s.questions, s.leaking) for s in catalog.subgraphs("films")] == [(1, False), (1, True)]


def test_a_set_with_all_questions_of_an_earlier_one_replaces_it(catalog, films):
    add(catalog, seed=Seed.TOPICS_AND_GOLD, q1=["Big"])
    add(catalog, q1=["Big"], q2=["Comedy"])
    assert [s.questions for s in catalog.subgraphs("films")] == [2]
    again = catalog.get("films").version
    add(catalog, q1=["Big"], q2=["Comedy"])
    assert catalog.get("films").version == again
    assert not again.endswith("-leaking")


def test_a_graph_must_be_there_to_have_subgraphs(catalog):
    with pytest.raises(GraphNotFoundError):
        add(catalog, q1=["Big"])


def test_rog_records_load_with_their_subgraphs(catalog, tmp_path):
    path = tmp_path / "records.jsonl"
    records = [
        {"id": "q1", "question": "?", "graph": [["a", "r", "é\u2028"], ["a", "r", "b"]]},
        {"id": "q2", "question": "?", "graph": [["a", "r", "c"], ["a", "r", "b"]]},
        {"id": "q3", "question": "?", "graph": []},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert catalog.load("rog", path).triples == 3
    store = catalog.get("rog")

    def tails(graph):
        return [item.id for item in graph.tail_entities(["a"], ["r"], limit=9).items]

    assert tails(store) == ["b", "c", "é\u2028"]
    assert tails(store.subgraph("q1")) == ["b", "é\u2028"]
    assert tails(store.subgraph("q2")) == ["b", "c"]
    assert store.subgraph("q3").resolve_entity("a") == ()
    assert [(s.seed, s.questions) for s in catalog.subgraphs("rog")] == [(Seed.GIVEN, 3)]


def test_a_store_without_subgraphs_says_so():
    tools = LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples([("a", "r", "b")])}))
    [result] = tools.execute("toy", [Action("get_tail_relations", {"entity": "a"})], graph="q")
    assert result.code is ErrorCode.SAMPLE_NOT_FOUND

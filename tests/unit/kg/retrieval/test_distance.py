"""Distances over a graph drawn by hand, and against a search that looks at everything."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.errors import QueryTimeoutError
from kbqa.kg.actions import Action, Failure
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.retrieval.distance import Distance, distance
from kbqa.kg.tools import LocalGraphTools

INFINITE = 99
# Big -starred-> Tom Hanks <-starred- Philadelphia -released-> 1993; an island of two apart from them.
TRIPLES = [
    ("Big", "starred", "Tom Hanks"),
    ("Philadelphia", "starred", "Tom Hanks"),
    ("Philadelphia", "released", "1993"),
    ("Philadelphia", "set in", "Philadelphia"),
    ("Atlantis", "near", "Avalon"),
]


@pytest.fixture(scope="module")
def store():
    return OxigraphStore.from_triples(TRIPLES)


@pytest.fixture(scope="module")
def measure(store):
    tools = LocalGraphTools(FixedGraphs({"toy": store}))

    def measure(**arguments):
        [result] = tools.execute("toy", [Action("entity_distance", arguments)])
        return result

    return measure


@pytest.mark.parametrize(
    ("a", "b", "max_distance", "edges"),
    [
        (["Big"], ["Big"], 3, 0),
        (["Big"], ["Tom Hanks"], 3, 1),
        (["Tom Hanks"], ["Big"], 3, 1),
        (["Big"], ["Philadelphia"], 3, 2),
        (["Big"], ["1993"], 3, 3),
        (["Big"], ["1993"], 2, None),
        (["Big"], ["Tom Hanks"], 0, None),
        (["Big"], ["Big"], 0, 0),
        (["Big"], ["Avalon"], 10, None),
        (["Big", "Atlantis"], ["1993", "Avalon"], 3, 1),
        (["Big", "1993"], ["Tom Hanks"], 3, 1),
    ],
)
def test_the_least_distance_between_two_sets_without_direction(measure, a, b, max_distance, edges):
    result = measure(set_a=a, set_b=b, max_distance=max_distance)
    assert result.details["distance"] == edges
    assert (result.items, result.truncated) == ((), False)


def test_the_bound_is_three_unless_another_is_given(measure):
    assert measure(set_a=["Big"], set_b=["1993"]).details["distance"] == 3


def test_what_is_not_connected_is_told_from_what_is_farther_than_the_bound(measure):
    assert measure(set_a=["Big"], set_b=["Avalon"], max_distance=10).details["at_least"] is None
    assert measure(set_a=["Big"], set_b=["1993"], max_distance=2).details["at_least"] == 3


def test_names_that_the_graph_lacks_are_passed_over_and_told(measure):
    result = measure(set_a=["42", "Big"], set_b=["Tom Hanks", "nobody"])
    assert (result.details["distance"], result.details["unknown"]) == (1, ["42", "nobody"])


def test_a_set_of_nothing_known_is_a_failure_that_names_its_first(measure):
    result = measure(set_a=["Big"], set_b=["42", "nobody"])
    assert isinstance(result, Failure)
    assert (result.code, result.message) == ("KG_ENTITY_NOT_FOUND", 'Entity "42" not found in KG')


@pytest.mark.parametrize(
    "arguments",
    [
        {"set_a": ["Big"]},
        {"set_a": "Big", "set_b": ["Big"]},
        {"set_a": [], "set_b": ["Big"]},
        {"set_a": ["Big"], "set_b": ["Big"], "max_distance": -1},
        {"set_a": ["Big"], "set_b": ["Big"], "max_distance": 11},
        {"set_a": ["Big"], "set_b": ["Big"], "max_distance": True},
        {"set_a": ["Big"] * 1001, "set_b": ["Big"]},
    ],
)
def test_sets_are_lists_of_names_and_the_bound_is_small(measure, arguments):
    assert measure(**arguments).code == "KG_FORMAT_ERROR"


def test_labels_stand_for_all_that_bear_them_and_literals_are_nodes(tmp_path):
    file = tmp_path / "graph.ttl"
    file.write_text(
        """
        @prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        :p1 rdfs:label "Paris" ; :in :texas . :p2 rdfs:label "Paris" ; :in :france .
        :texas :founded 1845 . :iowa :admitted 1845 .
        """
    )
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("rdf", file)
    tools = LocalGraphTools(catalog)
    ask = [(["Paris"], ["http://ex.org/france"]), (["http://ex.org/texas"], ["http://ex.org/iowa"])]
    results = tools.execute("rdf", [Action("entity_distance", {"set_a": a, "set_b": b}) for a, b in ask])
    assert [result.details["distance"] for result in results] == [1, 2]
    catalog.close()


def test_a_search_that_sees_too_many_nodes_is_given_up():
    store = OxigraphStore.from_triples((hub, "r", f"{hub}{n}") for hub in "ab" for n in range(500))
    assert distance(store, ["a"], ["a499"], max_nodes=100) == Distance(1, 1)
    assert distance(store, ["a"], ["b"], max_nodes=100) == Distance(None, 1, complete=False)
    assert distance(store, ["a"], ["b"], max_nodes=700) == Distance(None, 2, complete=False)
    assert distance(store, ["a"], ["b"], max_nodes=1002) == Distance(None, None)


def test_a_search_ends_at_its_deadline(store):
    with pytest.raises(QueryTimeoutError, match="within 0 s"):
        distance(store, ["Big"], ["Avalon"], deadline_s=0.0)


NODES = [f"{n}" for n in range(40)]
sets_of_nodes = st.lists(st.sampled_from(NODES), min_size=1, max_size=3)


@pytest.fixture(scope="module", params=range(4), ids=lambda seed: f"graph{seed}")
def random_graph(request):
    """A store of some components, and the length of the shortest path of each connected pair."""
    draw = random.Random(request.param)
    triples = [(draw.choice(NODES), draw.choice("rs"), draw.choice(NODES)) for _ in range(36)]
    lengths = {(node, node): 0 for node in NODES}
    lengths |= {pair: 1 for s, _, o in triples if s != o for pair in ((s, o), (o, s))}
    for via, x, y in product(NODES, repeat=3):
        through = lengths.get((x, via), INFINITE) + lengths.get((via, y), INFINITE)
        lengths[x, y] = min(lengths.get((x, y), INFINITE), through)
    return OxigraphStore.from_triples(triples), lengths


@settings(max_examples=60, deadline=None)
@given(a=sets_of_nodes, b=sets_of_nodes, max_distance=st.integers(0, 8))
def test_distances_are_those_of_all_pairs_shortest_paths(random_graph, a, b, max_distance):
    store, lengths = random_graph
    shortest = min(lengths[x, y] for x in a for y in b)
    found = distance(store, a, b, max_distance=max_distance)
    if shortest <= max_distance:
        assert found == Distance(shortest, shortest)
    elif shortest < INFINITE:
        assert found == Distance(None, max_distance + 1)
    else:
        assert found.edges is None
        assert found.at_least in (None, max_distance + 1)

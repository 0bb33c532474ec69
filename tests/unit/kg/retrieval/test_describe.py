"""What an entity is, at a glance."""

from __future__ import annotations

import pytest

from kbqa.kg.actions import Action, ErrorCode
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools

EX, RDFS = "http://ex.org/", "http://www.w3.org/2000/01/rdf-schema#"


@pytest.fixture
def describe():
    def describe(store, entity, **arguments):
        tools = LocalGraphTools(FixedGraphs({"toy": store}))
        [result] = tools.execute("toy", [Action("describe", {"entity": entity, **arguments})])
        return result

    return describe


@pytest.fixture
def rdf(tmp_path):
    file = tmp_path / "graph.ttl"
    file.write_text(
        """
        @prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        @prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix schema: <http://schema.org/> .
        :paris rdfs:label "Paris"@en, "Parigi"@it ; skos:altLabel "City of Light" ; a :City, :Capital ;
          schema:description "Hauptstadt"@de, "capital of France"@en ; :in :france ; :twin :rome, :tokyo .
        :louvre :in :paris . :eiffel :in :paris . :marie :lived :paris .
        :x :note "Paris" .
        :City rdfs:label "city" . :in rdfs:label "located in" .
        :paris_tx rdfs:label "Paris" ; :in :texas .
        """
    )
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("rdf", file)
    yield catalog.get("rdf")
    catalog.close()


def item(id_, label=None):
    return {"id": EX + id_, "label": label or EX + id_}


def test_everything_at_a_glance(describe, rdf):
    [found] = describe(rdf, f"{EX}paris").items
    paris, located = item("paris", "Paris"), item("in", "located in")
    # label, altLabel, type, description, in, twin
    assert found == {
        "id": f"{EX}paris",
        "label": "Paris",
        "aliases": ["City of Light", "Parigi"],
        "types": [item("City", "city"), item("Capital")],
        "description": "capital of France",
        "tail": {
            "relations": 6,
            "edges": 2 + 1 + 2 + 2 + 1 + 2,
            "facts": [[paris, item("twin"), item("rome")], [paris, located, item("france")]],
            "truncated": False,
        },
        "head": {
            "relations": 2,
            "edges": 3,
            "facts": [[item("marie"), item("lived"), paris], [item("eiffel"), located, paris]],
            "truncated": False,
        },
    }


def test_a_label_means_all_that_bear_it(describe, rdf):
    result = describe(rdf, "Paris")
    assert [found["id"] for found in result.items] == [f"{EX}paris", f"{EX}paris_tx"]
    first = describe(rdf, "Paris", limit=1)
    assert (len(first.items), first.total, first.truncated) == (1, 2, True)


def test_a_graph_of_names_has_no_description(describe):
    store = OxigraphStore.from_triples([("Big", "starred", "Tom Hanks"), ("Big", "type.object.type", "film")])
    [found] = describe(store, "Big").items
    assert (found["label"], found["aliases"], found["description"]) == ("Big", [], None)
    assert found["types"] == [{"id": "film", "label": "film"}]
    assert found["head"] == {"relations": 0, "edges": 0, "facts": [], "truncated": False}
    names = [[term["label"] for term in fact] for fact in found["tail"]["facts"]]
    assert (names, found["tail"]["edges"]) == ([["Big", "starred", "Tom Hanks"]], 2)


def test_a_hub_is_described_in_bounds(describe):
    store = OxigraphStore.from_triples(("hub", f"r{n % 80:02}", f"n{n}") for n in range(400))
    [found] = describe(store, "hub").items
    tail = found["tail"]
    assert (tail["relations"], tail["edges"], len(tail["facts"]), tail["truncated"]) == (80, 320, 10, True)


def test_a_long_description_is_cut(describe):
    store = OxigraphStore.from_triples([("a", "common.topic.description", "word " * 1000)])
    [found] = describe(store, "a").items
    assert len(found["description"]) == 1001
    assert found["description"].endswith("…")


def test_an_entity_that_is_absent_is_a_failure(describe, rdf):
    result = describe(rdf, "Pariss")
    assert (result.code, result.message) == (ErrorCode.ENTITY_NOT_FOUND, 'Entity "Pariss" not found in KG')
    assert describe(rdf, ["Paris"]).message == "describe accepts only one entity argument"

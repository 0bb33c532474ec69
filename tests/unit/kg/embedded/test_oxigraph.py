"""The Oxigraph adapter: names and RDF terms as ids, labels, SPARQL."""

from __future__ import annotations

import errno
import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.errors import GraphWriteError, QueryRefusedError, QuerySyntaxError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.naming import entity_iri, name_of, relation_iri
from kbqa.kg.sparql.guard import ResultFormat

NASTY = [
    "Tom Hanks",
    'the "quoted" one',
    "it's, (really) a/b\\c",
    "100% %20 <tag> {x} [y] ^`|",
    "😀 ünï",
    "e\u0301 \u2028 \x85",
    " padded ",
    "1999",
    "urn:kbqa:e:x",
    '"literal"@en',
    "<http://ex.org/>",
    "_:b0",
]


@pytest.fixture
def rdf(tmp_path):
    file = tmp_path / "graph.ttl"
    file.write_text(
        """
        @prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        :paris rdfs:label "Paris"@fr, "City of Light"@en ; :in :france ; :population 2100000 .
        :paris_tx rdfs:label "City of Light" ; :in :texas .
        :in rdfs:label "located in" .
        :x :note "Paris"@fr , "Paris" ; :knows [ :note "nobody" ] .
        """
    )
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("rdf", file)
    yield catalog.get("rdf")
    catalog.close()


def ids(page):
    return [item.id for item in page.items]


def test_any_name_comes_back_exactly_as_it_was_written():
    store = OxigraphStore.from_triples((name, f"r{name}", name[::-1]) for name in NASTY)
    for name in NASTY:
        assert store.resolve_entity(name) == (name,)
        assert ids(store.tail_relations([name], limit=10))[:1] == [f"r{name}"]
        assert ids(store.tail_entities([name], [f"r{name}"], limit=10)) == [name[::-1]]


@given(st.text(st.characters(codec="utf-8")))
def test_names_survive_the_way_through_an_iri(name):
    assert name_of(entity_iri(name)) == name_of(relation_iri(name)) == name


@settings(max_examples=10, deadline=None)
@given(st.sets(st.tuples(*[st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)] * 3), max_size=8))
def test_a_store_holds_the_triples_it_was_made_of(triples):
    store = OxigraphStore.from_triples(triples)
    assert store.triples == len(triples)
    assert store.entities == len({e for s, _, o in triples for e in (s, o)})
    for s, r, o in triples:
        assert o in ids(store.tail_entities([s], [r], limit=100))


def test_a_store_that_cannot_be_written_ends_the_load(tmp_path, monkeypatch):
    class FullDisk:
        def __init__(self, path):
            self.path = path

        def bulk_load(self, **_):
            raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "graph.tsv"
    file.write_text("".join(f"entity {number}\tr\tx\n" for number in range(5_000)))  # more than a pipe holds
    catalog = GraphCatalog(tmp_path / "home")
    monkeypatch.setattr(ox, "Store", FullDisk)
    with pytest.raises(GraphWriteError, match="No space left on device.*free some space"):
        catalog.load("full", file)
    assert [entry.name for entry in (tmp_path / "home/graphs/full").iterdir()] == [".lock"]


def test_the_same_triples_have_the_same_version_in_any_order():
    one = OxigraphStore.from_triples([("a", "r", "b"), ("c", "r", "d")])
    two = OxigraphStore.from_triples([("c", "r", "d"), ("a", "r", "b"), ("a", "r", "b")])
    assert one.version == two.version != OxigraphStore.from_triples([("a", "r", "b")]).version


def test_sparql_finds_named_entities_by_their_percent_encoded_iris():
    store = OxigraphStore.from_triples([("Tom Hanks", "acts in", "Big")])
    query = f"SELECT ?o WHERE {{ <urn:kbqa:e:{quote('Tom Hanks', safe='')}> <urn:kbqa:r:acts%20in> ?o }}"
    rows = json.loads(store.query(query).body)["results"]["bindings"]
    assert [name_of(row["o"]["value"]) for row in rows] == ["Big"]


def test_ask_and_construct(rdf):
    ask = rdf.query("ASK { ?s <http://ex.org/in> ?o }")
    assert json.loads(ask.body)["boolean"] is True
    graph = rdf.query("CONSTRUCT WHERE { ?s <http://ex.org/population> ?o }")
    assert graph.format is ResultFormat.NTRIPLES
    assert graph.body.startswith(b"<http://ex.org/paris> <http://ex.org/population> ")


def test_queries_are_judged_before_they_are_executed(rdf):
    with pytest.raises(QueryRefusedError):
        rdf.query("DELETE WHERE { ?s ?p ?o }")
    with pytest.raises(QuerySyntaxError, match=r"2:\d+"):
        rdf.query("SELECT *\nWHERE { ?s ?p }")


def test_rdf_ids_are_iris_and_labels_are_accepted(rdf):
    assert rdf.resolve_entity("http://ex.org/paris") == ("http://ex.org/paris",)
    assert rdf.resolve_relation("located in") == ("http://ex.org/in",)
    page = rdf.tail_relations(["http://ex.org/paris_tx"], limit=10)
    assert ("http://ex.org/in", "located in") in [(item.id, item.label) for item in page.items]


def test_an_rdf_label_in_english_is_preferred_and_every_label_resolves(rdf):
    page = rdf.head_entities(["http://ex.org/france"], ["http://ex.org/in"], limit=10)
    assert [(item.id, item.label) for item in page.items] == [("http://ex.org/paris", "City of Light")]
    assert "http://ex.org/paris" in rdf.resolve_entity("Paris")


def test_an_ambiguous_label_means_all_of_its_entities(rdf):
    entities = rdf.resolve_entity("City of Light")
    assert {"http://ex.org/paris", "http://ex.org/paris_tx"} <= set(entities)
    found = rdf.tail_entities(entities, ["http://ex.org/in"], limit=10)
    assert ids(found) == ["http://ex.org/france", "http://ex.org/texas"]


def test_a_literal_is_an_item_whose_id_tells_its_type_and_language(rdf):
    page = rdf.tail_entities(["http://ex.org/x"], ["http://ex.org/note"], limit=10)
    assert [(item.id, item.label) for item in page.items] == [('"Paris"', "Paris"), ('"Paris"@fr', "Paris")]
    page = rdf.head_entities(['"Paris"@fr'], ["http://ex.org/note"], limit=10)
    assert ids(page) == ["http://ex.org/x"]
    [number] = rdf.tail_entities(["http://ex.org/paris"], ["http://ex.org/population"], limit=10).items
    assert number.label == "2100000"
    assert number.id == '"2100000"^^<http://www.w3.org/2001/XMLSchema#integer>'


def test_literals_are_neither_counted_as_entities_nor_linked(rdf):
    # paris, paris_tx, in, france, texas, x and one blank node.
    assert rdf.entities == 7
    assert [m.id for m in rdf.link("where is Paris")] == ["http://ex.org/paris"]


def test_a_blank_node_is_an_entity(rdf):
    [node] = rdf.tail_entities(["http://ex.org/x"], ["http://ex.org/knows"], limit=10).items
    assert node.id.startswith("_:")
    assert ids(rdf.tail_entities([node.id], ["http://ex.org/note"], limit=10)) == ['"nobody"']


def test_a_number_has_the_id_that_sparql_answers_with(tmp_path):
    file = tmp_path / "graph.nt"
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    file.write_text(f'<urn:a> <urn:n> "007"{integer} .\n<urn:a> <urn:n> "7"{integer} .\n')
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("rdf", file)
    store = catalog.get("rdf")
    [row] = json.loads(store.query("SELECT ?n { ?s ?p ?n }").body)["results"]["bindings"]
    assert (
        ids(store.tail_entities(["urn:a"], ["urn:n"], limit=10))
        == [store.id_of(row["n"])]
        == [f'"7"{integer}']
    )
    assert store.triples == 1
    catalog.close()


def test_freebase_names_are_labels(tmp_path):
    file = tmp_path / "graph.nt"
    name = "<http://rdf.freebase.com/ns/type.object.name>"
    file.write_text(f'<urn:m.0> {name} "Londres"@fr .\n<urn:m.0> {name} "London"@en .\n')
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("rdf", file)
    store = catalog.get("rdf")
    assert store.item("urn:m.0").label == "London"
    assert "urn:m.0" in store.resolve_entity("Londres")
    catalog.close()


def test_entities_are_linked_by_many_threads_at_once():
    store = OxigraphStore.from_triples([("Tom Hanks", "acts in", "Big")])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(store.link, ["where is Tom Hanks?"] * 8))
    assert [[mention.id for mention in mentions] for mentions in found] == [["Tom Hanks"]] * 8


def test_a_number_is_found_however_it_is_written(tmp_path):
    """Oxigraph stores 802 for 802.0, which a logical form may begin from."""
    file = tmp_path / "graph.ttl"
    file.write_text(
        '<http://ex.org/a> <http://ex.org/energy> "802.0"^^<http://www.w3.org/2001/XMLSchema#float> .'
    )
    with_number = GraphCatalog(tmp_path)
    with_number.load("numbers", file)
    [found] = with_number.get("numbers").resolve_entity("802")
    for name in ("802.0", "+802", "0802", "802."):
        assert with_number.get("numbers").resolve_entity(name) == (found,)
    assert with_number.get("numbers").resolve_entity("80.20") == ()
    with_number.close()

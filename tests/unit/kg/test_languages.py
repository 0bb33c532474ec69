"""The order of labels by language, in every kind of store."""

from __future__ import annotations

import pytest

from kbqa.errors import ConfigurationError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.endpoint.record import LABEL_PROPERTIES, RDFS_LABEL, Endpoint
from kbqa.kg.languages import check_languages, rank
from kbqa.kg.namespaces import Namespace, NamespaceOptions
from tests.sparql_servers import SparqlServer

EX = "http://ex.org/"
TURTLE = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix schema: <http://schema.org/> .
:all rdfs:label "ja"@ja, "none", "gb"@en-GB, "us"@en-US, "en"@en, "mul"@mul, "at"@de-AT, "de"@de .
:no_de rdfs:label "ja"@ja, "none", "gb"@en-GB, "en"@en, "mul"@mul .
:no_mul rdfs:label "ja"@ja, "none", "gb"@en-GB, "en"@en .
:dialect rdfs:label "ja"@ja, "none", "gb"@en-GB .
:untagged rdfs:label "ja"@ja, "none" .
:other rdfs:label "ja"@ja .
:tier rdfs:label "label"@ja ; skos:prefLabel "preferred"@de .
:person foaf:name "foaf"@ja , "Name"@de . :thing schema:name "thing" . :own :name "own name" .
"""
BEST = {
    "all": "de",
    "no_de": "mul",
    "no_mul": "en",
    "dialect": "gb",
    "untagged": "none",
    "other": "ja",
    "tier": "label",
    "person": "Name",
    "thing": "thing",
    "own": "own name",
}


@pytest.fixture(params=["embedded", "endpoint"])
def store(request, tmp_path):
    catalog = GraphCatalog(tmp_path)
    if request.param == "embedded":
        (tmp_path / "graph.ttl").write_text(TURTLE)
        catalog.load("graph", tmp_path / "graph.ttl", languages=("de",))
        yield catalog.get("graph")
    else:
        server = SparqlServer(TURTLE)
        own = NamespaceOptions((Namespace("ex", EX),))
        catalog.attach("graph", Endpoint(server.url, languages=("de",), deadline_s=60), naming=own)
        yield catalog.get("graph")
        server.stop()
    catalog.close()


def test_the_best_label_is_the_same_wherever_the_graph_is(store):
    found = store.items([EX + name for name in BEST])
    assert {id_.removeprefix(EX): item.label for id_, item in found.items()} == BEST


@pytest.mark.parametrize(
    ("best", "next_"),
    [
        ("de", "de-at"),
        ("de-AT", "fr"),
        ("fr", "mul"),
        ("mul", "en"),
        ("en", "en-gb"),
        ("en-us", ""),
        ("", "ja"),
    ],
)
def test_ranks(best, next_):
    assert rank(best, ("de", "fr")) < rank(next_, ("de", "fr"))


@pytest.mark.parametrize("languages", [("english language",), ("en",) * 9])
def test_wrong_languages_are_refused(languages, tmp_path):
    with pytest.raises(ConfigurationError):
        check_languages(languages)
    with pytest.raises(ConfigurationError):
        GraphCatalog(tmp_path).load("g", tmp_path / "none.ttl", languages=languages)


def test_attaching_keeps_the_properties_that_the_graph_has(tmp_path):
    server = SparqlServer('<http://e.org/a> <http://www.w3.org/2000/01/rdf-schema#label> "a" .')
    catalog = GraphCatalog(tmp_path)
    catalog.attach("g", Endpoint(server.url, deadline_s=60))
    [manifest] = tmp_path.glob("graphs/g/*/manifest.json")
    assert RDFS_LABEL in manifest.read_text()
    assert not any(iri in manifest.read_text() for iri in LABEL_PROPERTIES[1:])
    catalog.close()
    server.stop()

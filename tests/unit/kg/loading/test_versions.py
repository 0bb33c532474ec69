"""What a load leaves for look-ups and for SPARQL: labels, types and times."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbqa.errors import GraphLoadError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.forms import NameTable
from kbqa.kg.loading.facts import Calendar, TimeUnit
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.logical_forms.algebra import Class

PREFIXES = """
    PREFIX e: <urn:kbqa:e:> PREFIX r: <urn:kbqa:r:> PREFIX k: <urn:kbqa:>
    PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
    PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
    PREFIX skos: <http://www.w3.org/2004/02/skos/core#>
    PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""


@pytest.fixture
def catalog(tmp_path):
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    yield catalog
    catalog.close()


@pytest.fixture
def load(catalog, tmp_path):
    def load_files(graph, labels=None, rejected=None, **options):
        (tmp_path / "graph").write_text(graph)
        if labels is not None:
            (tmp_path / "labels").write_text(labels)
            options["labels"] = tmp_path / "labels"
        catalog.load("g", GraphSource([tmp_path / "graph"], **options), rejected=rejected)
        return catalog.get("g")

    return load_files


def rows(store, query):
    result = json.loads(store.query(PREFIXES + query).body)
    bindings = result["results"]["bindings"]
    return [tuple(row[name]["value"] for name in result["head"]["vars"]) for row in bindings]


def test_labels_and_aliases_are_accepted_shown_and_seen_by_sparql(load):
    store = load(
        "m.1\tin\tm.2\nm.3\tin\tm.2\n",
        "m.1\tParis\tCity of Light\nm.3\tParis\nm.2\tFrance\nin\tlocated in\nm.9\tnowhere\n",
    )
    assert store.resolve_entity("Paris") == ("m.1", "m.3")
    assert store.resolve_entity("City of Light") == ("m.1",)
    assert store.resolve_entity("nowhere") == ()
    assert store.resolve_relation("located in") == ("in",)
    page = store.head_entities(["m.2"], ["in"], limit=9)
    assert [(item.id, item.label) for item in page.items] == [("m.1", "Paris"), ("m.3", "Paris")]
    assert [item.label for item in store.tail_relations(["m.1"], limit=9).items] == ["located in"]
    assert [mention.id for mention in store.link("Where is City of Light?")] == ["m.1"]
    assert store.triples == 2
    assert rows(store, 'SELECT ?x { ?x rdfs:label "France" }') == [("urn:kbqa:e:m.2",)]
    assert rows(store, 'SELECT ?x { ?x skos:altLabel "City of Light" }') == [("urn:kbqa:e:m.1",)]
    assert rows(store, 'SELECT ?x { ?x rdfs:label "nowhere" }') == []


def test_labels_of_a_file_go_before_those_of_the_graph(load):
    store = load(
        '<http://e/a> <http://www.w3.org/2000/01/rdf-schema#label> "old" .\n'
        '<http://e/a> <http://e/r> "a value" .\n',
        'http://e/a\tnew\n"a value"\tnot a label\n',
    )
    assert store.item("http://e/a").label == "new"
    assert store.resolve_entity("new") == ("http://e/a",)
    assert "http://e/a" in store.resolve_entity("old")
    assert store.resolve_entity("not a label") == ()


@pytest.mark.parametrize("name", ["type", "is a", "isA", "Instance_Of", "rdf:type"])
def test_in_delimited_files_type_relations_are_recognised(load, name):
    store = load(f"a|{name}|film\na|starred|b\nb|{name}|person\nc|{name}|film\n")
    assert store.type_relations == (name,)
    assert [item.id for item in store.types()] == ["film", "person"]
    assert [item.id for item in store.members(Class("film"), limit=9).items] == ["a", "c"]
    asked = f"SELECT ?x {{ ?x {NameTable(store).type_path()} e:film }} ORDER BY ?x"
    assert rows(store, asked) == [("urn:kbqa:e:a",), ("urn:kbqa:e:c",)]
    kinds = store.survey(Class("film"), (), returning=False).classes
    assert [(kind.id, count) for kind, count in kinds] == [("film", 2)]


def test_further_type_relations_are_named(load):
    graph = "a|kind|film\na|starred|b\nb|kind|person\na|typed by|c\n"
    assert (load(graph).type_relations, load(graph).types()) == ((), [])
    store = load(graph, type_relations=("kind",))
    assert store.type_relations == ("kind",)
    assert [item.id for item in store.types()] == ["film", "person"]
    assert [item.id for item in store.members(Class("film"), limit=9).items] == ["a"]


def test_in_rdf_no_type_relation_is_recognised_by_its_name(load):
    store = load("<http://e/a> <http://e/type> <http://e/b> .\n<http://e/a> <e:type> <http://e/c> .\n")
    assert (store.type_relations, store.types()) == ((), [])


def test_a_graph_whose_types_an_earlier_version_did_not_recognise_is_loaded_again(load):
    assert load("a|is a|film\n").version != load("a|is b|film\n").version


def test_dated_facts_carry_all_their_times_and_are_statements(load):
    store = load("a\tmet\tb\t2014-05-13\na\tmet\tb\t2014-02-01\na\truled\tc\t2005-02\t2008-10\na\tknew\tb\n")
    [met] = store.tail_entities(["a"], ["met"], limit=9).items
    assert (met.id, met.times) == ("b", ("2014-02-01", "2014-05-13"))
    [ruled] = store.head_entities(["c"], ["ruled"], limit=9).items
    assert (ruled.id, ruled.times) == ("a", ("2005-02; 2008-10",))
    [knew] = store.tail_entities(["a"], ["knew"], limit=9).items
    assert not hasattr(knew, "times")
    assert store.triples == 3
    assert rows(
        store,
        "SELECT ?o ?t { ?f a rdf:Statement ; rdf:subject e:a ; rdf:predicate r:met ; rdf:object ?o ;"
        ' k:start ?t ; k:end ?t . FILTER(?t > "2014-03-01"^^xsd:date) }',
    ) == [("urn:kbqa:e:b", "2014-05-13")]
    assert rows(store, "SELECT ?o { e:a r:ruled ?o }") == [("urn:kbqa:e:c",)]
    assert rows(
        store, 'SELECT ?o { ?f rdf:object ?o ; k:end ?t FILTER(?t = "2008-10"^^xsd:gYearMonth) }'
    ) == [("urn:kbqa:e:c",)]


def test_what_is_skipped_is_noted_and_otherwise_nothing_is_loaded(load, catalog, tmp_path):
    before = load("a|r|b\n").version
    with pytest.raises(GraphLoadError):
        load("a|r|b\na|r\nc|r|d\n")
    assert catalog.get("g").version == before
    store = load("a|r|b\na|r\nc|r|d\n", rejected=RejectedLines(skip=True))
    assert store.triples == 2
    manifest = json.loads((tmp_path / "home/graphs/g" / store.version / "manifest.json").read_text())
    assert manifest["skipped_lines"] == 1


# Whatever a line of a delimited file can hold: no separator, no line feed, no surrogates.
any_name = st.text(st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name.strip() and not name.endswith("\r") and not name.startswith("\ufeff")
)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(any_name, any_name, any_name, any_name), min_size=1, max_size=20))
def test_names_and_labels_come_back_exactly(tmp_path_factory, lines):
    directory = tmp_path_factory.mktemp("names")
    triples = "".join(f"{head}\t{relation}\t{tail}\n" for head, relation, tail, _ in lines)
    (directory / "graph").write_bytes(triples.encode())
    (directory / "labels").write_bytes("".join(f"{head}\t{label}\n" for head, _, _, label in lines).encode())
    catalog = GraphCatalog(directory)
    source = GraphSource([directory / "graph"], GraphFormat.TAB, labels=directory / "labels")
    catalog.load("g", source)
    store = catalog.get("g")
    for head, relation, tail, label in lines:
        assert store.resolve_entity(head) == (head,)
        assert tail in [item.id for item in store.tail_entities([head], [relation], limit=99).items]
        # An id goes before a label.
        assert head in store.resolve_entity(label) or store.resolve_entity(label) == (label,)
    catalog.close()


@pytest.fixture
def icews14():
    data = os.environ.get("KBQA_DATA")
    if not data or not (Path(data) / "icews14").is_dir():
        pytest.skip("KBQA_DATA names no directory with icews14")
    return Path(data) / "icews14"


def test_icews14_has_dates_for_its_hours(catalog, icews14):
    source = GraphSource(
        [icews14 / f"{part}.txt" for part in ("train", "valid", "test")],
        entity_names=icews14 / "entity2id.txt",
        relation_names=icews14 / "relation2id.txt",
        calendar=Calendar(TimeUnit.HOUR, "2014-01-01"),
    )
    info = catalog.load("icews14", source)
    assert info.entities == 7128
    store = catalog.get("icews14")
    assert len(store.relations()) == 230
    visits = store.tail_entities(["Barack Obama"], ["Make a visit"], limit=999).items
    assert {item.id: item.times for item in visits}["Angola"] == ("2014-04-11",)
    # As often as the files say it, whoever counts.
    [(statements,)] = rows(store, "SELECT (COUNT(?f) AS ?n) { ?f rdf:subject e:Barack%20Obama }")
    number = next(
        line.split("\t")[1]
        for line in (icews14 / "entity2id.txt").read_text().splitlines()
        if line.startswith("Barack Obama\t")
    )
    lines = {
        line
        for part in ("train", "valid", "test")
        for line in (icews14 / f"{part}.txt").read_text().splitlines()
        if line.split("\t")[0] == number
    }
    assert int(statements) == len(lines)


def test_a_version_from_before_namespaces_keeps_its_ids(catalog, load, tmp_path):
    iri = "http://www.wikidata.org/entity/Q1"
    store = load(f"<{iri}> <http://www.wikidata.org/prop/direct/P31> <http://www.wikidata.org/entity/Q2> .\n")
    assert store.resolve_entity("wd:Q1") == ("Q1",)
    [manifest] = tmp_path.glob("home/graphs/*/*/manifest.json")
    fields = json.loads(manifest.read_text())
    assert fields.pop("namespaces")["wd"] == "http://www.wikidata.org/entity/"
    manifest.write_text(json.dumps(fields))
    reopened = GraphCatalog(tmp_path / "home")
    [info] = reopened.list()
    assert reopened.get(info.name).resolve_entity(iri) == (iri,)
    reopened.close()

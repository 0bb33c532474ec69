"""Views: graphs that hold a part of another graph, and tell nothing of the rest."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from kbqa.errors import ConfigurationError, GraphNotFoundError, GraphUnavailableError
from kbqa.kg.actions import Action, Item, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.files import GraphSource
from kbqa.kg.loading.views import ViewLimits
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.subgraphs import Seed, SubgraphWriter
from kbqa.kg.tools import LocalGraphTools

PROBES = 1000
CITIES, SECRET = ("Oslo", "Rome", "Bern", "Kyiv"), "zyx"
# What a caller of the view must not learn contains this syllable.
TRIPLES = [
    *((f"Ann {n}", "lives in", CITIES[n % 4]) for n in range(12)),
    *((f"Ann {n}", "knows", f"Ann {(n * 5 + 1) % 12}") for n in range(12)),
    *((f"Ann {n}", f"{SECRET} illness", f"{SECRET} disease {n % 3}") for n in range(12)),
    *((f"{SECRET} doctor {n}", f"{SECRET} treats", f"Ann {n}") for n in range(5)),
    *((f"{SECRET} doctor {n}", "lives in", f"{SECRET} village") for n in range(5)),
    ("Ann 1", "lives in", f"{SECRET} clinic"),
    (f"{SECRET} clinic", "type.object.type", f"{SECRET} place"),
    *((f"Ann {n}", "type.object.type", "person") for n in range(12)),
    *((city, "type.object.type", "city") for city in CITIES),
    *((f"{SECRET} doctor {n}", "type.object.type", f"{SECRET} physician") for n in range(5)),
]
VISIBLE = {
    triple
    for triple in TRIPLES
    if SECRET not in "".join(triple) and triple[1] in ("lives in", "knows", "type.object.type")
}
LIMITS = ViewLimits(relations=("lives in", "knows", "type.object.type"), types=("person", "city"))

RDF = """
@prefix : <http://x/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix zyx: <http://zyx/> .
:ann a :Person ; rdfs:label "Ann"  ;
     :born "1999"^^<http://www.w3.org/2001/XMLSchema#gYear> ; :knows _:someone ;
     rdfs:comment "has the zyx disease" ; :alias "zyx Ann" ; zyx:ill zyx:flu .
_:someone a :Person ; :born "2001"^^<http://www.w3.org/2001/XMLSchema#gYear> .
zyx:flu rdfs:label "zyx flu" ; a zyx:Disease .
:born rdfs:label "year of birth" . zyx:ill rdfs:label "zyx illness" . :knows rdfs:label "knows" .
"""


@pytest.fixture
def catalog(tmp_path):
    path, labels = tmp_path / "people.txt", tmp_path / "labels.txt"
    path.write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    labels.write_text(f"Ann 1\tAnnie\nAnn 2\tAnja\n{SECRET} doctor 1\tDr. {SECRET}\n")
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0)
    catalog.load("people", GraphSource([path], labels=labels))
    yield catalog
    catalog.close()


def rows(store, text="SELECT ?s ?p ?o { ?s ?p ?o }"):
    found = json.loads(store.query(text, deadline_s=20).body)["results"]["bindings"]
    return {tuple(store.id_of(row[name]) for name in "spo") for row in found}


def test_a_view_holds_exactly_the_facts_within_all_of_its_limits(catalog):
    info = catalog.make_view("people", "public", LIMITS)
    store = catalog.get("people@public")
    assert (info.name, info.triples) == ("people@public", len(VISIBLE))
    labels = {("Ann 1", "http://www.w3.org/2000/01/rdf-schema#label", '"Annie"')}
    assert rows(store) - VISIBLE >= labels, "names follow facts"
    assert {row for row in rows(store) if "label" not in row[1]} == VISIBLE
    assert store.item("Ann 2").label == "Anja"
    assert {graph.name for graph in catalog.list()} == {"people", "people@public"}


def test_values_belong_to_the_entities_of_the_types(catalog):
    catalog.make_view("people", "ill", ViewLimits(types=("person",)))
    relations = {item.id for item in catalog.get("people@ill").relations()}
    assert relations == {"knows", "type.object.type", f"{SECRET} illness"}, "a disease has no facts: a value"
    tails = catalog.get("people@ill").tail_entities(["Ann 1", "Ann 2"], ["lives in"], limit=9).items
    assert tails == (), "cities and clinics are entities of other types"


def test_a_view_knows_the_type_relations_of_its_graph(tmp_path):
    path = tmp_path / "films.txt"
    path.write_text("Heat|kind|film\nHeat|by|Mann\nMann|kind|person\nMann|by|Heat\n")
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("films", GraphSource([path], type_relations=("kind",)))
    catalog.make_view("films", "only", ViewLimits(types=("film",)))
    view = catalog.get("films@only")
    assert (view.type_relations, view.types()) == (("kind",), [Item("film", "film")])
    assert rows(view) == {("Heat", "kind", "film")}
    catalog.close()


def test_a_view_of_rdf_keeps_names_and_no_descriptions(tmp_path):
    path = tmp_path / "ann.ttl"
    path.write_text(RDF)
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("ann", path)
    catalog.make_view("ann", "public", ViewLimits(relations=("year of birth", "http://x/knows")))
    store = catalog.get("ann@public")
    everything = store.query("CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }", deadline_s=20).body.decode()
    assert "zyx" not in everything
    assert len(everything.splitlines()) == 6, "two births, whom Ann knows, three names"
    assert (store.item("http://x/ann").label, store.item("http://x/born").label) == ("Ann", "year of birth")
    catalog.close()


def test_dated_facts_keep_their_times(tmp_path):
    path = tmp_path / "visits.txt"
    path.write_text("Japan\tvisits\tIran\t2014-05-13\nJapan\tvisits\tPeru\t2015\nJapan\tzyx\tPeru\t2016\n")
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("visits", path)
    catalog.make_view("visits", "public", ViewLimits(relations=("visits",)))
    found = catalog.get("visits@public").tail_entities(["Japan"], ["visits"], limit=9).items
    assert [(item.id, item.times) for item in found] == [("Iran", ("2014-05-13",)), ("Peru", ("2015",))]
    times = catalog.get("visits@public").query("SELECT ?t { ?x <urn:kbqa:start> ?t }").body.decode()
    assert "2015" in times
    assert "2016" not in times
    catalog.close()


def test_a_view_may_be_the_union_of_per_question_subgraphs(catalog):
    def write(store, directory):
        with SubgraphWriter(store, directory, source="q", seed=Seed.GIVEN) as writer:
            writer.add_triples("q1", [("Ann 1", "knows", "Ann 6")])
            writer.add_triples("q2", [("Ann 6", "lives in", "Bern"), ("Ann 1", "knows", "Ann 6")])
            writer.add_triples("q3", TRIPLES)
            return writer.finish()

    catalog.add_subgraphs("people", write)
    catalog.make_view("people", "asked", ViewLimits(subgraphs=("q1", "q2")))
    store = catalog.get("people@asked")
    assert store.triples == 2
    assert store.subgraph("q1") is None, "it would name questions"


def test_when_the_graph_changes_so_do_its_views(catalog, tmp_path):
    catalog.make_view("people", "public", LIMITS)
    before = catalog.get("people@public").version
    path = tmp_path / "people.txt"
    path.write_text("".join("\t".join(t) + "\n" for t in TRIPLES if t[0] != "Ann 3"))
    catalog.load("people", path)
    after = catalog.get("people@public")
    assert after.version != before
    assert after.resolve_entity("Ann 3") == ("Ann 3",), "somebody knows her"
    assert after.tail_entities(["Ann 3"], ["knows"], limit=9).items == ()


def test_a_view_that_cannot_be_made_again_is_refused(catalog, tmp_path):
    catalog.make_view("people", "public", LIMITS)
    path = tmp_path / "people.txt"
    path.write_text("a\tknows\tb\n")
    catalog.load("people", path)
    with pytest.raises(GraphUnavailableError, match="kbqa kg view"):
        catalog.get("people@public")


@pytest.mark.parametrize(
    ("graph", "view", "limits", "error", "says"),
    [
        ("people", "public", {"relations": ("hates",)}, ConfigurationError, 'no relation "hates"'),
        ("people", "public", {"types": ("dragon",)}, ConfigurationError, 'no type "dragon"'),
        ("people", "public", {"subgraphs": ("q",)}, ConfigurationError, "no per-question subgraph"),
        ("people", "a@b", {"types": ("city",)}, ConfigurationError, "cannot name a view"),
        ("people", "../x", {"types": ("city",)}, ConfigurationError, "cannot name a view"),
        ("people", "none", {"relations": ("knows",), "types": ("city",)}, ConfigurationError, "no fact"),
        ("others", "public", {"types": ("city",)}, GraphNotFoundError, "others"),
    ],
)
def test_a_view_that_cannot_be_made_says_why(catalog, graph, view, limits, error, says):
    with pytest.raises(error, match=says):
        catalog.make_view(graph, view, ViewLimits(**limits))
    assert [info.name for info in catalog.list()] == ["people"]


def test_a_view_needs_a_limit_and_a_loaded_graph_has_no_at_sign(catalog, tmp_path):
    with pytest.raises(ConfigurationError, match="needs a limit"):
        ViewLimits()
    with pytest.raises(ConfigurationError, match="cannot name a graph"):
        catalog.load("people@public", tmp_path / "people.txt")


NAMES = sorted({name for triple in TRIPLES for name in (triple[0], triple[2])})
RELATIONS = sorted({triple[1] for triple in TRIPLES})
LOOKS = (
    "SELECT ?s ?p ?o {{ ?s ?p ?o FILTER(CONTAINS(STR(?{v}), '{s}')) }}",
    "SELECT (COUNT(*) AS ?n) {{ <urn:kbqa:e:{e}> (<>|!<>)+ ?x }}",
    "ASK {{ ?s <urn:kbqa:r:{r}> ?o }}",
    "SELECT * {{ ?s <urn:kbqa:r:{r}> ?o }} LIMIT 5",
    "DESCRIBE <urn:kbqa:e:{e}>",
    "CONSTRUCT {{ ?s ?p ?o }} WHERE {{ <urn:kbqa:e:{e}> ?p ?x . ?s ?p ?o }}",
)


def probe(draw: random.Random) -> Action:
    """One action of any kind, about visible and hidden names alike."""
    entity, other, relation = draw.choice(NAMES), draw.choice(NAMES), draw.choice(RELATIONS)
    sparql = draw.choice(LOOKS).format(
        e=entity.replace(" ", "%20"), r=relation.replace(" ", "%20"), s=SECRET[:2], v=draw.choice("spo")
    )
    simple = (
        draw.choice(("knows", "type.object.type", SECRET)),
        draw.choice(("person", "city", "Oslo", SECRET)),
    )
    form = f"(JOIN {simple[0]} {simple[1]})"
    around = f"SELECT ?x WHERE {{ <urn:kbqa:e:{entity.replace(' ', '%20')}> ?r ?x }}"
    name, arguments = draw.choice(
        [
            ("get_tail_relations", {"entity": entity}),
            ("get_head_relations", {"entity": entity}),
            ("get_tail_entities", {"entity": entity, "relation": relation}),
            ("get_head_entities", {"entity": entity, "relation": relation, "gate": True}),
            ("execute_sparql", {"query": sparql}),
            ("find_relation", {"entity": entity, "relation": relation}),
            ("execute_logical_form", {"expression": form}),
            ("execute_logical_form", {"expression": f"(COUNT {form})"}),
            ("search_types", {"query": f"{SECRET} physician"}),
            ("search_graph_patterns", {"sparql": around, "semantic": relation}),
            ("node_relations", {"node": entity, "question": relation}),
            ("entity_distance", {"set_a": [entity], "set_b": [other, "Ann 1"], "max_distance": 6}),
            ("describe", {"entity": draw.choice([entity, relation])}),
            ("resolve_names", {"names": [entity, other, relation]}),
            ("labels", {"entities": [entity, other], "languages": ["en"]}),
            ("follow_path", {"entity": entity, "path": [relation], "question": other}),
            ("expand", {"question": f"{entity} {relation}", "topics": [entity, other], "ahead": True}),
            ("link_entities", {"question": f"Does {entity} know {other}, {SECRET}?"}),
            ("complete_name", {"text": draw.choice([entity, SECRET])[: draw.randint(1, 4)]}),
        ]
    )
    return Action(name, arguments)


def told(result) -> object:
    """Everything that a caller learns, apart from how long it took."""
    return replace(result, elapsed_ms=0.0) if isinstance(result, Success) else result


def test_a_thousand_probes_cannot_tell_what_is_hidden(catalog, tmp_path):
    """Non-interference: views of two graphs that differ only in what is hidden give the same answers."""
    path, labels = tmp_path / "others.txt", tmp_path / "labels.txt"
    hidden = [("Ann 3", "owes", "Ann 7"), ("spy", "lives in", "Rome"), ("spy", "knows", "Ann 1")]
    path.write_text("".join("\t".join(triple) + "\n" for triple in sorted(VISIBLE) + hidden))
    catalog.load("others", GraphSource([path], labels=labels))
    for graph in ("people", "others"):
        catalog.make_view(graph, "public", LIMITS)
    assert catalog.get("people").triples != catalog.get("others").triples
    tools = LocalGraphTools(catalog)
    draw = random.Random(20)
    probes = [probe(draw) for _ in range(PROBES)]
    answers, same = (tools.execute(f"{graph}@public", probes) for graph in ("people", "others"))
    for asked, one, other in zip(probes, answers, same, strict=True):
        assert told(one) == told(other), asked
    kinds = Counter(
        asked.name for asked, one in zip(probes, answers, strict=True) if isinstance(one, Success)
    )
    assert set(kinds) == {spec.name for spec in ACTIONS.values()}, "every action found something"
    public, whole = catalog.list()[1], catalog.get("people")
    assert (public.name, catalog.list()[3].triples) == ("others@public", public.triples)
    differs = [a for a, b in zip(tools.execute("people", probes), answers, strict=True) if told(a) != told(b)]
    assert len(differs) > PROBES / 4, f"the probes would have seen what {whole.version} hides"

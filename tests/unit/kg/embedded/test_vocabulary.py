"""What of a graph is schema, and what a question therefore links to."""

from __future__ import annotations

import pytest

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.embedded.vocabulary import naming_relations, texts, vocabulary

EX = "http://ex.org/"
PREFIXES = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
"""
COMPANY = """
:Department a owl:Class ; rdfs:label "Department" ; rdfs:comment "Part of a firm" .
:Employee a rdfs:Class ; rdfs:label "Employee" . :Agent rdfs:label "Agent" .
:Employee rdfs:subClassOf :Agent .
:memberOf a owl:ObjectProperty ; rdfs:label "member of" ; rdfs:range :Unit . :Unit rdfs:label "Unit" .
:price rdfs:domain :Product ; rdfs:label "price" . :Product rdfs:label "Product" .
:Tool rdfs:label "Tool" ; rdfs:comment "What one works with" .
:Violin rdfs:label "Violin" ; :madeOf :wood . :wood rdfs:label "wood" .
:data a :Department ; rdfs:label "Data Services" .
:ann a :Employee ; rdfs:label "Ann Brant" ; :memberOf :data ; :city "Toulouse" ; :age 30 ; :motto "Work" .
:hammer a :Tool ; rdfs:label "Big Hammer" . :strad a :Violin ; rdfs:label "Messiah" .
:ann :note "A very long note about Ann that is no name of anything" ; :code "X7"^^:Code .
"""


@pytest.fixture
def load(tmp_path):
    catalog = GraphCatalog(tmp_path)

    def loaded(turtle, name="graph") -> OxigraphStore:
        (tmp_path / "graph.ttl").write_text(PREFIXES + turtle)
        catalog.load(name, tmp_path / "graph.ttl")
        return catalog.get(name)

    yield loaded
    catalog.close()


def local(ids):
    return {id_.removeprefix(EX) for id_ in ids if id_.startswith(EX)}


def linked(store, question):
    return [(m.id.removeprefix(EX), question[m.start : m.end]) for m in store.link(question)]


def test_classes_and_relations_are_schema_but_a_class_with_facts_is_an_entity_too(load):
    schema, classes = vocabulary(load(COMPANY), named=False)
    relations = {"memberOf", "price", "madeOf", "city", "age", "motto", "note", "code"}
    assert local(schema) == {"Department", "Employee", "Agent", "Unit", "Product", "Tool"} | relations
    assert local(classes) == {"Violin"}


def test_the_classes_of_an_ontology_without_instances_are_its_entities(load):
    ontology = (
        ':Disease a owl:Class . :Malaria a owl:Class ; rdfs:subClassOf :Disease ; rdfs:label "Malaria" .'
    )
    assert linked(load(ontology), "what causes malaria?") == [("Malaria", "malaria")]
    assert linked(load(ontology + ":case a :Malaria .", "cases"), "what causes Malaria?") == []


def test_short_texts_without_a_datatype_are_values(load):
    company = load(COMPANY)
    found = {item.id for _, item in texts(company, naming_relations(company))}
    assert {'"Toulouse"', '"Work"'} <= found
    assert not any("long note" in id_ or "X7" in id_ or "30" in id_ for id_ in found)


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("In which Department is Ms. Brant?", [("ann", "Brant")]),
        ("which departments are there?", []),
        ("What is the price of the Big Hammer?", [("hammer", "Big Hammer")]),
        ("Who has the Violin?", [("Violin", "Violin")]),
        ("Which Employee lives in Toulouse?", [('"Toulouse"', "Toulouse")]),
    ],
)
def test_a_question_names_entities_and_values_not_the_schema(load, question, topics):
    assert linked(load(COMPANY), question) == topics


def test_in_a_delimited_file_an_entity_may_be_called_like_a_relation():
    store = OxigraphStore.from_triples([("Heat", "genre", "director"), ("Ali", "director", "Mann")])
    assert [m.id for m in store.link("Which film has the tag director?")] == ["director"]


def test_in_a_delimited_file_a_class_is_an_entity_if_more_is_said_of_it():
    store = OxigraphStore.from_triples(
        [
            *(("Tom", "is a", "cat"), ("Ann", "is a", "baker"), ("Ann", "owns", "Tom")),
            *(("cat", "is a", "animal"), ("Rex", "is a", "dog"), ("dog", "eats", "meat")),
        ]
    )
    schema, classes = store.vocabulary
    assert (schema, classes) == ({"baker", "animal"}, {"cat", "dog"})


NAMED = """
:ann foaf:name "Ann Brant"@en , "Anne Brant"@fr ; :title "Manager" . :bob foaf:name "Bob" ; :title "Manager" .
:cyd :title "Manager" . :dee :name "Dee" ; rdfs:label "Dr. Dee" ; skos:altLabel "The Doctor" .
:nick rdfs:subPropertyOf rdfs:label . :dee :nick "Deedee" . :ann :knows :dee .
"""


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("Ann Brant", [f"{EX}ann"]),
        ("Anne Brant", [f"{EX}ann"]),
        ("The Doctor", [f"{EX}dee"]),
        ("Deedee", [f"{EX}dee"]),
        ("Manager", ['"Manager"']),
        ("Dee", ['"Dee"']),
    ],
)
def test_names_are_read_from_what_gives_names(load, name, ids):
    resolved = load(NAMED).resolve_entity(name)
    assert [id_ for id_ in resolved if not id_.startswith('"')] == ids or list(resolved) == ids


def test_a_further_name_is_shown_where_there_is_no_label(load):
    store = load(NAMED)
    assert [store.item(f"{EX}{id_}").label for id_ in ("ann", "dee", "cyd")] == [
        "Ann Brant",
        "Dr. Dee",
        f"{EX}cyd",
    ]


def test_a_lesser_name_or_identifier_stands_for_the_few_entities_that_have_it(load):
    parts = "".join(
        f':p{n} rdfs:label "K{n} - part" ; :id "K{n}" ; :name "Bolt {n // 6}" ; :name "Part {n}" .\n'
        for n in range(8)
    )
    store = load(parts + ':p1 :colour "Red" ; :title "Chief" . :p2 :title "Chief" . :p3 :title "Chief" .')
    assert linked(store, "What fits the K7?") == [("p7", "K7")]
    assert linked(store, "What fits the Bolt 1?") == [("p6", "Bolt 1"), ("p7", "Bolt 1")]
    assert linked(store, "What fits the Bolt 0?") == []  # six are called so
    assert linked(store, "Which are Red?") == [('"Red"', "Red")]
    assert linked(store, "Who is the Chief?") == [('"Chief"', "Chief")]  # of three

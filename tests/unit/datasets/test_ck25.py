"""Questions of the TEXT2SPARQL challenge: what is read, and what their queries find."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.catalog import open_published
from kbqa.datasets.published import Part
from kbqa.errors import DatasetError, QueryRefusedError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.files import GraphSource
from kbqa.kg.retrieval.execute_sparql import solve

INSTANCES = """
@prefix v: <http://x/vocab/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
<http://x/1> v:name "Ann" ; v:memberOf <http://x/d> ; v:parts "12" .
<http://x/2> v:name "Ben" ; v:memberOf <http://x/d> ; v:parts "30" .
"""
VOCABULARY = """
@prefix v: <http://x/vocab/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
v:memberOf rdfs:label "member of"@en ; rdfs:comment "The department of an employee."@en .
"""
QUESTIONS = """
dataset: {id: https://x/, prefix: x}
questions:
- id: 1
  question: {en: "Who is a member?", es: "¿Quién es miembro?"}
  query: {sparql: "PREFIX v: <http://x/vocab/> SELECT ?x ?n { ?x v:memberOf <http://x/d> ; v:name ?n }"}
- id: 2
  question: {es: "¿Cuántas partes?"}
  query: {sparql: "SELECT (SUM(xsd:int(?p)) AS ?n) { ?x <http://x/vocab/parts> ?p }"}
- id: 3
  question: {en: "Is there an Ann?"}
  query: {sparql: 'ASK { ?x <http://x/vocab/name> "Ann" }'}
"""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "instances.ttl").write_text(INSTANCES)
    (tmp_path / "vocabulary.ttl").write_text(VOCABULARY)
    (tmp_path / "questions_small.yml").write_text(QUESTIONS)
    return tmp_path


def read(place, **options):
    return open_published("ck25", None, place, **options).read(Part.TEST)


def test_the_answers_are_what_the_queries_find_in_all_files(directory):
    first, second, third = read(directory)
    assert (first.id, first.text, first.kg) == ("1", "Who is a member?", "ck25")
    assert set(first.answers) == {"http://x/1", "Ann", "http://x/2", "Ben"}
    assert (second.text, second.answers) == ("¿Cuántas partes?", ("42",))
    assert (third.answers, third.operation) == (("true",), "boolean")


def test_the_graph_is_all_files_together(directory):
    (graph,) = load_dataset("ck25", 1, data=directory).graphs
    assert (graph.name, graph.file) == ("ck25", directory)
    assert sorted(line.strip() for line in graph.lines() if "memberOf" in line)[-1].startswith("v:memberOf")
    with closing(GraphCatalog(directory / "home")) as catalog:
        catalog.load("ck25", graph.as_file(directory))
        store = catalog.get("ck25")
        relations = store.tail_relations(["http://x/1"], limit=9).items
        assert "member of" in [relation.label for relation in relations]


def test_without_the_graph_there_are_questions_but_no_answers(tmp_path):
    file = tmp_path / "questions.yaml"
    file.write_text(QUESTIONS)
    assert [question.answers for question in read(file)] == [(), (), ()]
    (graph,) = load_dataset("ck25", 1, data=file).graphs
    assert not graph.is_included


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("questions: [", r"questions_small.yml:1: not YAML"),
        ("[]", 'a list of records under "questions"'),
        ("questions: [{id: 1, question: {}, query: {sparql: x}}]", 'record 1: "question" has no text'),
        ("questions: [{id: 1, question: {en: x}}]", 'record 1: "query" is missing'),
        ("questions: [{id: 1, question: {en: x}, query: {sparql: SELECT}}]", "record 1: the query cannot be"),
        (
            "questions: [{id: 1, question: {en: x}, query: {sparql: 'ASK { SERVICE <http://y/> {} }'}}]",
            "SERVICE is refused",
        ),
    ],
)
def test_what_cannot_be_read_is_named(directory, content, reason):
    (directory / "questions_small.yml").write_text(content)
    with pytest.raises(DatasetError, match=reason):
        read(directory)


@pytest.fixture
def data():
    if "KBQA_DATA" not in os.environ:
        pytest.skip("KBQA_DATA does not name the directory of the real data sets")
    return Path(os.environ["KBQA_DATA"]) / "ck25"


def test_all_reference_queries_run_on_both_files(data, tmp_path):
    with closing(GraphCatalog(tmp_path)) as catalog:
        files = [data / "prod-inst.ttl", data / "prod-vocab.ttl"]
        info = catalog.load("ck25", GraphSource(files))
        assert info.triples == 26_903
        store = catalog.get("ck25")
        assert store.resolve_relation("has manager") == ("http://ld.company.org/prod-vocab/hasManager",)
        rows = {}
        for question in read(data):
            found = solve(store, question.sparql, deadline_s=30)
            rows[question.id] = len(found.bindings)
            assert found.boolean is False if question.id == "33" else found.bindings, question.text
        # Casts and HAVING; a closure over both files; sub-queries.
        assert (rows["37"], rows["27"], rows["35"], rows["41"]) == (7, 47, 1938, 6)
        with pytest.raises(QueryRefusedError, match="GRAPH is refused"):
            solve(store, "SELECT * { GRAPH ?g { ?s ?p ?o } }", deadline_s=5)


def test_ck25_is_found_under_its_name(data):
    published = load_dataset("ck25", 1, data.parent)
    assert len(published.splits.test) == 25
    answers = {question.id: question.answers for question in published.splits.test}
    assert answers["9"] == ("3",)
    assert answers["3"] == ("http://ld.company.org/prod-instances/empl-Waldtraud.Kuttner%40company.org",)

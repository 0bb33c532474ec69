from __future__ import annotations

import json
import os
from pathlib import Path

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.decomposition import MAX_TRIPLES, FormStep, Mode, decompose
from kbqa.logical_forms.graph_pattern import MAX_TOKENS, Triple, is_variable, parse_select
from tests.unit.logical_forms.forms import patiently

PREFIX = "PREFIX : <http://x/>"


def steps(pattern, select="DISTINCT ?x", modifiers=""):
    """Mode, node and query of each step, the query without prologue and `SELECT DISTINCT`."""
    gold = f"{PREFIX} SELECT {select} WHERE {{ {pattern} }} {modifiers}".strip()
    *first, last = decompose(gold)
    assert last.query == gold
    return [
        *(
            (step.mode.value, step.node, step.query.removeprefix(f"{PREFIX} SELECT DISTINCT "))
            for step in first
        ),
        (last.mode.value, last.node, "gold"),
    ]


def test_one_relation_is_one_step():
    assert steps(":m1 :a ?x .") == [("progressive", "http://x/m1", "gold")]


def test_a_path_grows_relation_by_relation():
    assert steps(":m1 :a ?y . ?x :b ?y . ?x :c ?z .", select="?z") == [
        ("progressive", "http://x/m1", "?y WHERE { :m1 :a ?y . }"),
        ("progressive", "?y", "?x WHERE { :m1 :a ?y . ?x :b ?y . }"),
        ("progressive", "?x", "gold"),
    ]


def test_branches_are_taken_alone_and_merged():
    assert steps(":m1 :a ?y . ?y :b ?x . :m2 :c ?x .") == [
        ("progressive", "http://x/m1", "?y WHERE { :m1 :a ?y . }"),
        ("progressive", "?y", "?x WHERE { :m1 :a ?y . ?y :b ?x . }"),
        ("progressive", "http://x/m2", "?x WHERE { :m2 :c ?x . }"),
        ("compositional", "?x", "gold"),
    ]


def test_branches_that_meet_before_the_answer_are_merged_where_they_meet():
    assert steps("?y :a :m1 ; :b :m2 . ?y :c ?x .") == [
        ("progressive", "http://x/m1", "?y WHERE { ?y :a :m1 . }"),
        ("progressive", "http://x/m2", "?y WHERE { ?y :b :m2 . }"),
        ("compositional", "?y", "?y WHERE { ?y :a :m1 . ?y :b :m2 . }"),
        ("progressive", "?y", "gold"),
    ]


def test_a_superlative_follows_its_candidates():
    assert steps(":m1 :a ?x . ?x :size ?s . ?s :number ?n .", modifiers="ORDER BY DESC(?n) LIMIT 1") == [
        ("progressive", "http://x/m1", "?x WHERE { :m1 :a ?x . }"),
        ("progressive", "?x", "?s WHERE { :m1 :a ?x . ?x :size ?s . }"),
        ("progressive", "?s", "gold"),
    ]


def test_an_order_over_what_the_candidates_have_is_a_step_of_its_own():
    assert steps(":m1 :a ?x .", modifiers="ORDER BY ?x LIMIT 1") == [
        ("progressive", "http://x/m1", "?x WHERE { :m1 :a ?x . }"),
        ("progressive", "?x", "gold"),
    ]


def test_a_count_follows_the_entities_it_counts():
    assert steps(":m1 :a ?x .", select="(COUNT(DISTINCT ?x) AS ?n)") == [
        ("progressive", "http://x/m1", "?x WHERE { :m1 :a ?x . }"),
        ("progressive", "?x", "gold"),
    ]


def test_constraints_join_as_soon_as_their_variables_are_there():
    pattern = (
        "FILTER (?x != :m1) FILTER (?from < 3) ?y a :Roster . VALUES ?e { :m1 } "
        "?e :a ?y . ?y :from ?from . ?y :b ?x . OPTIONAL { ?x :name ?name }"
    )
    assert steps(pattern) == [
        ("progressive", "http://x/m1", "?y WHERE { ?e :a ?y . ?y a :Roster . VALUES ?e { :m1 } }"),
        (
            "progressive",
            "?y",
            "?from WHERE { ?e :a ?y . ?y :from ?from . ?y a :Roster . FILTER ( ?from < 3 )"
            " VALUES ?e { :m1 } }",
        ),
        ("progressive", "?y", "gold"),
    ]


def test_without_entities_the_answer_s_class_is_the_start():
    assert steps("?x a :Meteorite . ?x :mass ?m . FILTER (?m <= 5)") == [
        ("progressive", "http://x/Meteorite", "?x WHERE { ?x a :Meteorite . }"),
        ("progressive", "?x", "gold"),
    ]


def test_parts_that_only_a_filter_links_are_taken_apart_and_merged():
    assert steps(":m1 :a ?x . ?x :end ?end . :m2 :start ?start . FILTER (?start < ?end)") == [
        ("progressive", "http://x/m1", "?x WHERE { :m1 :a ?x . }"),
        ("progressive", "?x", "?end WHERE { :m1 :a ?x . ?x :end ?end . }"),
        ("progressive", "http://x/m2", "?start WHERE { :m2 :start ?start . }"),
        ("compositional", "?x", "gold"),
    ]


def test_a_query_with_nothing_to_start_from_is_one_step():
    assert steps("{ :m1 :a ?x } UNION { :m2 :a ?x }") == [("progressive", None, "gold")]


def test_entities_in_other_elements_start_nothing():
    assert steps('{ :m1 :a ?x } UNION { :m2 :a ?x } ?x :code "24" .') == [("progressive", None, "gold")]


def test_every_step_has_answers_where_the_gold_query_has():
    graph = pyoxigraph.Store()
    lines = ["m1 a y", "y b x", "m2 c x", "m2 c other", "x size s", "s number n", "w a v", "v b u"]
    triples = [" ".join(f"<http://x/{name}>" for name in line.split()) + " ." for line in lines]
    graph.load("\n".join(triples).encode(), format=pyoxigraph.RdfFormat.N_TRIPLES)
    gold = f"""{PREFIX} # a comment, with ?variables
        SELECT DISTINCT ?x WHERE {{ :m1 :a/:b ?x . :m2 :c ?x . ?x :size [] . }}"""
    with pytest.raises(LogicalFormError, match=r"expected a term, found \["):
        decompose(gold)
    sequence = decompose(gold.replace("[]", "?s . ?s :number ?n"))
    assert [step.node for step in sequence] == ["http://x/m1", "http://x/m2", "?x", "?x", "?s"]
    answers = [
        [row[0].value.removeprefix("http://x/") for row in graph.query(step.query)] for step in sequence
    ]
    assert [sorted(row) for row in answers] == [["x"], ["other", "x"], ["x"], ["s"], ["x"]]


def test_a_query_is_taken_apart():
    query = parse_select(
        """PREFIX ns: <http://ns/>
        SELECT ?x ?y WHERE {
          ?x ns:a.b.c ?y ; ns:d "a } b"@en, 3.5 .
          FILTER NOT EXISTS { ?x ns:e ?z }
          VALUES (?y ?w) { (1 2) }
          { SELECT (MAX(?v) AS ?w) WHERE { ?u ns:f ?v } }
          ?y ^ns:g*/ns:h|!ns:i ?w
        } GROUP BY ?x HAVING (COUNT(?y) > 1)"""
    )
    assert query.triples == (
        Triple("?x", "ns:a.b.c", "?y"),
        Triple("?x", "ns:d", '"a } b"@en'),
        Triple("?x", "ns:d", "3.5"),
        Triple("?y", "^ ns:g * / ns:h | ! ns:i", "?w"),
    )
    assert [constraint.text.split()[0] for constraint in query.constraints] == ["FILTER", "VALUES", "{"]
    assert query.answer == "?x"
    assert query.iri("ns:a.b") == "http://ns/a.b"
    assert query.modifiers == "GROUP BY ?x HAVING ( COUNT ( ?y ) > 1 )"
    assert query.inner is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ASK { ?x ?p ?o }", "expected SELECT, found ASK"),
        ("SELECT ?x WHERE { VALUES ?x }", "expected a bracket, found }"),
        ("SELECT ?x WHERE { ?x :a", "expected more, found the end"),
        ("SELECT ?x WHERE { ?x :a ?y ) }", r"expected a term, found \)"),
        ("SELECT ?x WHERE { FILTER (?x > {1) } }", r"\) does not match the bracket"),
        ("SELECT ?x WHERE { ?x :a ?y } }", "unexpected } after the query"),
        ("SELECT ?x WHERE " + "{ SELECT ?x WHERE " * 99, "nest deeper"),
        ("SELECT ?x " * MAX_TOKENS, "at most 2000 tokens"),
        ("SELECT ?x { " + "?x :a ?y . " * (MAX_TRIPLES + 1) + "}", "at most 64 triples"),
    ],
)
def test_what_cannot_be_taken_apart_is_an_error(text, message):
    with pytest.raises(LogicalFormError, match=message):
        decompose(text)


FRAGMENTS = [
    "SELECT",
    "?x",
    "WHERE",
    "{",
    "}",
    "(",
    ")",
    ":a",
    ".",
    ";",
    "FILTER",
    "VALUES",
    "UNION",
    "OPTIONAL",
    "COUNT",
]


@given(
    st.text()
    | st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(lambda rest: "SELECT ?x { " + " ".join(rest))
)
@patiently
def test_no_text_crashes_the_decomposition(text):
    try:
        sequence = decompose(text)
    except LogicalFormError:
        return
    assert sequence[-1].query == text


def load(*path):
    if "KBQA_DATA" not in os.environ:
        pytest.skip("KBQA_DATA does not name the directory of the real data sets")
    return json.loads(Path(os.environ["KBQA_DATA"]).joinpath(*path).read_text(encoding="utf-8"))


def test_complex_web_questions_are_decomposed_step_by_step():
    for record in load("cwq", "cwq_test_sample.json"):
        gold = parse_select(record["sparql"])
        seen: set[str] = set()
        grown: set[Triple] = set()
        for step in decompose(record["sparql"]):
            query = parse_select(step.query)
            assert set(query.triples) <= set(gold.triples)
            assert step.node is None or not is_variable(step.node) or step.node in seen, record["ID"]
            assert (
                step.mode is Mode.COMPOSITIONAL
                or set(query.triples) - grown
                or step.query == record["sparql"]
            )
            seen.add(query.answer)
            grown |= set(query.triples)
        assert isinstance(step, FormStep)
        assert step.query == record["sparql"]

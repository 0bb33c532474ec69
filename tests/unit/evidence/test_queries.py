"""The query behind answers: from queries, and from chains of triples."""

from __future__ import annotations

import json

import pytest

from kbqa.evidence import CitedQuery, query_behind
from tests.unit.evidence.test_claims import FILMS

PENNY, TOM = ("Big", "directed by", "Penny Marshall"), ("Big", "starred", "Tom Hanks")


def behind(*answers, tools=FILMS, kg="films"):
    return query_behind(answers, tools, kg)


def values(sparql):
    store = FILMS._graphs.get("films")
    bindings = json.loads(store.query(sparql).body)["results"]["bindings"]
    return {store.id_of(term) for row in bindings for term in row.values()}


def test_the_query_of_most_answers_is_the_one():
    first, second = CitedQuery("SELECT ?x {}", []), CitedQuery("SELECT ?y {}", [])
    assert behind(("a", first), ("b", second), ("c", second)) == "SELECT ?y {}"
    assert behind(("a", first), ("b", second)) == "SELECT ?x {}"


def test_the_query_is_one_for_any_engine():
    written = CitedQuery("SELECT COUNT(?x) { ?x rdfs:label 'a' }", [])
    assert behind(("1", written)) == (
        "PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> "
        "SELECT (COUNT(?x) AS ?callret1) { ?x rdfs:label 'a' }"
    )


@pytest.mark.parametrize(
    ("answer", "chain", "found"),
    [
        ("Tom Hanks", [TOM], {"Tom Hanks", "Elizabeth Perkins"}),
        ("Big", [PENNY], {"Big"}),
        ("Philadelphia", [TOM, ("Philadelphia", "starred", "Tom Hanks")], {"Philadelphia"}),
        ("Concord", [TOM, ("Tom Hanks", "born in", "Concord")], {"Concord"}),
    ],
)
def test_a_chain_becomes_the_query_of_its_relations(answer, chain, found):
    assert values(behind((answer, chain))) == found


def test_a_chain_may_come_back_to_where_it_began():
    back = [TOM, ("Big", "starred", "Tom Hanks")]
    assert "Big" in values(behind(("Big", back)))


def test_chains_of_the_same_relations_are_one_query():
    other = ("Big", "starred", "Elizabeth Perkins")
    sparql = behind(("Penny Marshall", [PENNY]), ("Tom Hanks", [TOM]), ("Elizabeth Perkins", [other]))
    assert values(sparql) == {"Tom Hanks", "Elizabeth Perkins"}


def test_without_evidence_there_is_no_query():
    assert behind() is behind(("a", None)) is behind(("a", []), (None, None)) is None
    assert behind(("Concord", [TOM])) is None  # the triples do not lead there
    assert behind((None, [TOM])) is None
    assert behind(("nobody", [("nowhere", "starred", "nobody")])) is None  # the graph lost it


def test_a_chain_may_start_at_a_literal(tmp_path):
    from kbqa.kg.catalog import GraphCatalog
    from kbqa.kg.tools import LocalGraphTools

    file = tmp_path / "graph.ttl"
    file.write_text('<http://x/acme> <http://x/city> "Toulouse"@fr .')
    catalog = GraphCatalog(tmp_path)
    catalog.load("firms", file)
    chain = [("http://x/acme", "http://x/city", '"Toulouse"@fr')]
    sparql = behind(("http://x/acme", chain), tools=LocalGraphTools(catalog), kg="firms")
    assert '"Toulouse"@fr' in sparql
    assert json.loads(catalog.get("firms").query(sparql).body)["results"]["bindings"]
    catalog.close()

"""A query as an action: its rows, and what an agent learns from one that fails."""

from __future__ import annotations

import pytest

from kbqa.errors import (
    GraphUnavailableError,
    QueryError,
    QueryLostError,
    QueryMemoryError,
    QueryOverloadError,
    QueryRefusedError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.actions import Action, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.handlers import store_failure
from kbqa.kg.tools import LocalGraphTools

XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.fixture(scope="module")
def execute(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rdf")
    file = directory / "graph.ttl"
    file.write_text(
        """
        @prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        :paris rdfs:label "Paris"@en ; :in :france ; :population 2100000 .
        :france :motto "Liberté"@fr .
        :in rdfs:label "located in" .
        """
    )
    catalog = GraphCatalog(directory / "home")
    catalog.load("rdf", file)
    named = OxigraphStore.from_triples(("hub", "links to", f"n{n:02}") for n in range(30))
    graphs = {"rdf": catalog.get("rdf"), "named": named}
    tools = LocalGraphTools(FixedGraphs(graphs), max_items=20)

    def execute(query, kg="rdf", **arguments):
        [result] = tools.execute(kg, [Action("execute_sparql", {"query": query, **arguments})])
        return result

    yield execute
    catalog.close()


def test_a_row_has_terms_with_ids_and_labels(execute):
    result = execute(
        "PREFIX : <http://ex.org/> SELECT ?city ?r ?n ?country WHERE { ?city :population ?n ; ?r ?country . "
        "FILTER(?country = :france) }"
    )
    assert result.items == (
        {
            "city": {
                "type": "uri",
                "value": "http://ex.org/paris",
                "id": "http://ex.org/paris",
                "label": "Paris",
            },
            "r": {
                "type": "uri",
                "value": "http://ex.org/in",
                "id": "http://ex.org/in",
                "label": "located in",
            },
            "n": {
                "type": "literal",
                "value": "2100000",
                "datatype": f"{XSD}integer",
                "id": f'"2100000"^^<{XSD}integer>',
                "label": "2100000",
            },
            "country": {
                "type": "uri",
                "value": "http://ex.org/france",
                "id": "http://ex.org/france",
                "label": "http://ex.org/france",
            },
        },
    )
    assert (result.total, result.truncated) == (1, False)
    assert result.details == {"variables": ["city", "r", "n", "country"]}


def test_a_language_and_a_computed_value_are_terms_too(execute):
    result = execute(
        "PREFIX : <http://ex.org/> SELECT ?motto (COUNT(?x) AS ?n) ?nothing WHERE "
        "{ :france :motto ?motto . ?x ?r ?y } GROUP BY ?motto ?nothing"
    )
    [row] = result.items
    assert row["motto"] == {
        "type": "literal",
        "value": "Liberté",
        "xml:lang": "fr",
        "id": '"Liberté"@fr',
        "label": "Liberté",
    }
    assert row["n"]["label"] == "5"
    assert "nothing" not in row
    assert result.details["variables"] == ["motto", "n", "nothing"]


def test_ids_of_a_delimited_graph_are_its_names(execute):
    result = execute("SELECT ?s ?r WHERE { ?s ?r <urn:kbqa:e:n07> }", kg="named")
    assert [(row["s"]["id"], row["r"]["label"]) for row in result.items] == [("hub", "links to")]


def test_ask_answers_by_a_boolean(execute):
    yes = execute("PREFIX : <http://ex.org/> ASK { :paris :in :france }")
    no = execute("PREFIX : <http://ex.org/> ASK { :france :in :paris }")
    assert (yes.items, yes.details, no.details) == ((), {"boolean": True}, {"boolean": False})


def test_a_query_without_rows_is_answered_with_none(execute):
    result = execute("SELECT ?x WHERE { ?x <http://ex.org/none> ?y }")
    assert (result.items, result.total, result.truncated) == ((), 0, False)


def test_rows_are_paged_like_items(execute):
    query = "SELECT ?o WHERE { ?s ?r ?o } ORDER BY ?o"
    page = execute(query, kg="named", limit=3, offset=2)
    assert [row["o"]["id"] for row in page.items] == ["n02", "n03", "n04"]
    assert (page.total, page.truncated) == (30, True)
    capped = execute(query, kg="named", limit=1000)
    assert (len(capped.items), capped.total, capped.truncated) == (20, 30, True)
    assert not execute(query, kg="named", offset=25).truncated


@pytest.mark.parametrize(
    ("query", "kind", "code", "says"),
    [
        ("SELECT ?x WHERE { ?x ?r", "query_syntax", "KG_FORMAT_ERROR", "error at 1:"),
        ("find me Paris", "query_syntax", "KG_FORMAT_ERROR", "no SELECT"),
        ('SELECT ?x WHERE { ?x ?r "open }', "query_syntax", "KG_FORMAT_ERROR", "does not end"),
        ("DELETE WHERE { ?s ?r ?o }", "query_refused", "KG_FORMAT_ERROR", "DELETE is refused"),
        ("SELECT ?x { SERVICE <http://h/> { ?x ?r ?o } }", "query_refused", "KG_FORMAT_ERROR", "SERVICE"),
        ("CONSTRUCT { ?s ?r ?o } WHERE { ?s ?r ?o }", "query_refused", "KG_FORMAT_ERROR", "SELECT instead"),
        ("DESCRIBE <http://ex.org/paris>", "query_refused", "KG_FORMAT_ERROR", "SELECT instead"),
    ],
)
def test_what_the_writer_did_wrong_is_told_by_kind(execute, query, kind, code, says):
    result = execute(query)
    assert isinstance(result, Failure)
    assert (result.kind, result.code) == (kind, code)
    assert says in result.message
    assert not result.kind.is_transient


def test_a_syntax_error_says_where(execute):
    result = execute("SELECT ?x\nWHERE { ?x ?r }")
    assert (result.details["line"], result.details["column"] > 1) == (2, True)


def test_a_query_is_stopped_at_its_deadline_and_may_ask_for_less(execute):
    bomb = (
        "SELECT (COUNT(*) AS ?n) WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n1 ?o . ?p ?q ?r }"
    )
    result = execute(bomb, kg="named", timeout_s=0.2)
    assert (result.kind, result.code) == (ErrorKind.QUERY_TIMEOUT, "KG_SERVER_ERROR")
    assert "0.2 s" in result.message
    assert result.kind.is_transient


@pytest.mark.parametrize("timeout_s", [0, -1, "3", True, 3601, None, [1]])
def test_a_timeout_is_a_number_of_seconds(execute, timeout_s):
    assert execute("ASK {}", timeout_s=timeout_s).code == "KG_FORMAT_ERROR"


@pytest.mark.parametrize("arguments", [{}, {"query": 7}, {"sparql": "ASK {}"}, {"query": "ASK {}", "x": 1}])
def test_other_arguments_are_a_format_error(arguments):
    tools = LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples([("a", "r", "b")])}))
    [result] = tools.execute("toy", [Action("execute_sparql", arguments)])
    assert result.code == "KG_FORMAT_ERROR"


@pytest.mark.parametrize(
    ("error", "kind", "transient", "details"),
    [
        (QuerySyntaxError("error at 3:14: expected }"), "query_syntax", False, {"line": 3, "column": 14}),
        (QuerySyntaxError("no SELECT"), "query_syntax", False, {}),
        (QueryRefusedError("SERVICE is refused"), "query_refused", False, {}),
        (QueryTimeoutError("stopped"), "query_timeout", True, {}),
        (QueryMemoryError("memory"), "query_failed", True, {}),
        (QueryError("broke"), "query_failed", True, {}),
        (QueryOverloadError("wait", 2.5), "overloaded", True, {"retry_after_s": 2.5}),
        (QueryLostError("killed"), "backend_unavailable", True, {}),
        (GraphUnavailableError("down"), "backend_unavailable", True, {}),
    ],
)
def test_what_a_store_raises_is_a_failure_of_its_kind(error, kind, transient, details):
    found = store_failure(error)
    assert (found.kind, found.kind.is_transient, found.details) == (kind, transient, details)
    assert found.message == str(error)

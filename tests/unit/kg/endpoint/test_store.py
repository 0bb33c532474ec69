"""Graphs at endpoints: attached like a load, asked no more than needed, failing by their own types."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from kbqa.errors import (
    GraphUnavailableError,
    QueryError,
    QueryOverloadError,
    QueryRefusedError,
    QuerySyntaxError,
    QueryTimeoutError,
)
from kbqa.kg.actions import EXECUTE_SPARQL, Action, ErrorCode, ErrorKind, Failure, Success
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.sparql.guard import ResultFormat
from kbqa.kg.tools import LocalGraphTools
from tests.sparql_servers import SparqlServer, free_port
from tests.unit.kg.endpoint.starred import EX, STARRED


def test_what_was_asked_is_not_asked_again(server, connect):
    store = connect(server.url)
    for _ in range(3):
        store.tail_entities([f"{EX}big"], [f"{EX}starred"], limit=10)
        store.query("SELECT * { ?s  ?p ?o }")
        store.query("SELECT * { ?s ?p ?o } # again")
    assert len(server.requests) == 2
    for _ in range(2):
        store.query("SELECT (NOW() AS ?now) { }")
    assert len(server.requests) == 4


def test_failures_are_asked_again(server, connect):
    store = connect(server.url)
    server.answer_with(lambda request: request.reply(500, b"broken"))
    for _ in range(2):
        with pytest.raises(QueryError, match="broken"):
            store.query("SELECT * { ?s ?p ?o }")
        with pytest.raises(QueryError, match="broken"):
            store.resolve_entity("Big")
    server.answer_with(server.execute)
    assert store.resolve_entity("Big") == (f"{EX}big",)
    assert store.query("SELECT * { ?s ?p ?o }").rows == 303


def test_what_does_not_parse_or_may_not_run_is_never_sent(server, connect):
    store = connect(server.url)
    with pytest.raises(QuerySyntaxError, match=r"error at 1:\d+"):
        store.query("SELECT * { ?s ?p", deadline_s=10)
    with pytest.raises(QueryRefusedError):
        store.query("SELECT * { SERVICE <http://ex.org/> { ?s ?p ?o } }")
    assert server.requests == []


@pytest.mark.parametrize("query", ["SELECT * { ?s ?p", "SELECT * { ?s ?p ?o }"])
def test_a_query_whose_syntax_cannot_be_checked_in_time_is_not_sent(server, connect, queries, query):
    store = connect(server.url)
    store.query("ASK { ?s ?p ?o }", deadline_s=10)
    server.requests.clear()
    process = queries._idle.get(timeout=10)
    with pytest.raises(QueryOverloadError, match="no query process became free within 0.1 s"):
        store.query(query, deadline_s=0.1)
    queries._idle.put(process)
    os.kill(process._child.pid, signal.SIGSTOP)
    with pytest.raises(QueryTimeoutError, match=r"syntax could not be checked within 0\.1 s: send it again"):
        store.query(query, deadline_s=0.1)
    assert server.requests == []


def test_a_query_is_parsed_and_not_executed_before_it_is_sent(server, connect):
    server.answer_with(lambda request: request.reply(200, b'{"head":{"vars":[]},"results":{"bindings":[]}}'))
    many = " ".join(f"{number}" for number in range(1000))
    long = " ".join(f"VALUES ?v{place} {{ {many} }}" for place in range(5))
    assert connect(server.url).query(f"SELECT * {{ {long} }}", deadline_s=10).rows == 0
    assert len(server.requests) == 1


def test_a_server_s_own_extensions_pass_if_syntax_is_not_checked(server, connect):
    server.answer_with(lambda request: request.reply(200, b'{"head":{"vars":[]},"results":{"bindings":[]}}'))
    extended = "SELECT * { ?s ?p ?o OPTION (TRANSITIVE) }"
    with pytest.raises(QuerySyntaxError):
        connect(server.url).query(extended, deadline_s=10)
    assert connect(server.url, check_syntax=False).query(extended).rows == 0
    assert [request["query"] for request in server.requests] == [extended]


def test_a_query_is_sent_as_the_standard_has_it(server, connect):
    connect(server.url).query(
        "SELECT ?x { ?x ns:film.film.starring ?y FILTER(?x = 1 OR ?y = 2) }", deadline_s=10
    )
    [request] = server.requests
    assert "<http://rdf.freebase.com/ns/film.film.starring>" in request["query"]
    assert "||" in request["query"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"head":{"vars":["s"]}}',
        b'{"head":{"vars":["s"]},"results":{"bindings":[{"s":{"type":"uri"}}]}}',
        b'{"head":{"vars":["s"]},"results":{"bindings":[{"s":7}]}}',
        b'{"head":{"vars":["s"]},"results":{"bindings":[{"s":{"type":"uri","value":"http',
        b"[" * 100_000,
    ],
)
def test_what_is_no_result_is_an_unavailable_graph(server, connect, body):
    server.answer_with(lambda request: request.reply(200, body, "application/sparql-results+json"))
    store = connect(server.url)
    with pytest.raises(GraphUnavailableError, match="not SPARQL results"):
        store.query("SELECT ?s { ?s ?p ?o }")
    with pytest.raises(GraphUnavailableError, match="not SPARQL results"):
        store.resolve_entity("Big")


def test_an_answer_that_is_too_long_keeps_its_whole_rows(server, connect):
    store = connect(server.url, max_bytes=2000)
    result = store.query("SELECT ?s ?o { ?s ?p ?o }")
    assert result.truncated
    assert 5 < result.rows < 303
    rows = json.loads(result.body)["results"]["bindings"]
    assert len(rows) == result.rows
    assert all(set(row) == {"s", "o"} for row in rows)
    graph = store.query("CONSTRUCT WHERE { ?s ?p ?o }")
    assert graph.truncated
    assert graph.body.count(b" .\n") == graph.rows > 5


def test_a_server_s_own_cap_is_told_and_never_makes_a_short_look_up(server, connect):
    def capped(request):
        found = server.store.query(request.form["query"])
        request.reply(200, found.serialize(format=JSON), X_SPARQL_MaxRows="3")

    from pyoxigraph import QueryResultsFormat

    JSON = QueryResultsFormat.JSON
    server.answer_with(capped)
    store = connect(server.url)
    assert store.query("SELECT * { ?s ?p ?o } LIMIT 3").truncated
    assert not store.query("SELECT * { ?s ?p ?o } LIMIT 2").truncated
    with pytest.raises(QueryError, match="cut the answer"):
        store.tail_entities([f"{EX}numbers"], [f"{EX}has"], limit=2)


def test_iris_that_are_none_survive_json_and_are_not_accepted_back(server, connect):
    body = (
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"uri","value":"http://ex.org/a b"}},'
        b'{"x":{"type":"typed-literal","value":"1","datatype":"urn:t"}},'
        b'{"x":{"type":"bnode","value":"nodeID://b1"}}]}}'
    )
    server.answer_with(lambda request: request.reply(200, body, "application/sparql-results+json"))
    store = connect(server.url)
    rows = json.loads(store.query("SELECT ?x { ?x ?p ?o }").body)["results"]["bindings"]
    assert [store.id_of(row["x"]) for row in rows] == ["http://ex.org/a b", '"1"^^<urn:t>', "nodeID://b1"]
    with pytest.raises(QueryError, match="ask for application/sparql-results"):
        store.query("SELECT ?x { ?x ?p ?o }", result=ResultFormat.XML)
    with pytest.raises(QueryError, match="cannot be written"):
        store.entity_term("http://ex.org/a b")


SCHEMA = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
:Unit a owl:Class ; rdfs:label "Unit" . :Malaria a owl:Class ; rdfs:label "Malaria" .
:price rdfs:label "price" . :weight a owl:DatatypeProperty ; rdfs:label "weight" .
:piano rdfs:label "piano" . :steinway a :piano ; :price 7 . :data a :Unit ; rdfs:label "Data Services" .
"""


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("Which Unit is Data Services?", ["data"]),
        ("what is the price and the weight of a unit?", []),
        ("Who plays the piano?", ["piano"]),
        ("Is a piano in Data Services?", ["data"]),
        ("What causes Malaria?", ["Malaria"]),
    ],
)
def test_a_question_does_not_name_the_schema(connect, question, topics):
    server = SparqlServer(SCHEMA)
    try:
        assert [m.id.removeprefix(EX) for m in connect(server.url).link(question)] == topics
    finally:
        server.stop()


@pytest.mark.parametrize("name", ["http://ex.org/x> ?p ?o } #", '"x" ?p', '"a\nb"', "_:b", "\ud800", 'x"\\'])
def test_no_name_changes_what_a_look_up_asks(server, connect, name):
    store = connect(server.url)
    assert store.resolve_entity(name) == ()
    assert store.resolve_relation(name) == ()
    assert store.tail_relations([name], limit=5).total == 0
    assert store.head_entities([name], [name], limit=5).total == 0
    assert store.link(name) == []


def test_a_dead_endpoint_fails_each_action_by_its_type_and_soon(connect):
    store = connect(f"http://127.0.0.1:{free_port()}/sparql", deadline_s=5)
    tools = LocalGraphTools(FixedGraphs({"films": store}), deadline_s=60)
    began = time.monotonic()
    sparql = Action(EXECUTE_SPARQL, {"query": "SELECT * { ?s ?p ?o }"})
    results = tools.execute("films", [STARRED, sparql] * 5)
    assert time.monotonic() - began < 25  # one of the ten waits for its whole deadline, and the others do not
    for result in results:
        assert isinstance(result, Failure)
        assert (result.code, result.kind) == (ErrorCode.SERVER_ERROR, ErrorKind.BACKEND_UNAVAILABLE)


def test_a_slow_endpoint_is_a_timeout_and_never_an_empty_answer(server, connect):
    server.answer_with(lambda request: time.sleep(2))
    store = connect(server.url, deadline_s=0.3)
    [result] = LocalGraphTools(FixedGraphs({"films": store})).execute("films", [STARRED])
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.QUERY_TIMEOUT
    with pytest.raises(QueryTimeoutError):
        store.query("SELECT * { ?s ?p ?o }", deadline_s=0.5)


def test_execute_sparql_labels_its_rows(server, connect):
    tools = LocalGraphTools(FixedGraphs({"films": connect(server.url)}), deadline_s=10)
    action = Action(EXECUTE_SPARQL, {"query": f"SELECT ?who {{ ?film <{EX}starred> ?who }}"})
    [result] = tools.execute("films", [action])
    assert isinstance(result, Success)
    assert result.items[0]["who"]["id"] == f"{EX}hanks"
    assert result.items[0]["who"]["label"] == "Tom Hanks"


def test_execute_sparql_asks_for_no_labels_of_values(server, connect):
    """Virtuoso answers with coordinates of a datatype that it refuses in a query."""
    tools = LocalGraphTools(FixedGraphs({"films": connect(server.url)}), deadline_s=10)
    point = '"POINT(8.5 51.9)"^^<http://www.openlinksw.com/schemas/virtrdf#Geometry>'
    action = Action(EXECUTE_SPARQL, {"query": f"SELECT ?where {{ BIND({point} AS ?where) }}"})
    [result] = tools.execute("films", [action])
    assert isinstance(result, Success)
    assert (result.items[0]["where"]["id"], result.items[0]["where"]["label"]) == (point, "POINT(8.5 51.9)")
    assert len(server.requests) == 1

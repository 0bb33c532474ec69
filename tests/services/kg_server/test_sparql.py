"""GET|POST /v1/kg/{kg}/sparql: protocol, formats, limits."""

from __future__ import annotations

import concurrent.futures
import statistics
import time

import httpx
import pytest

from services.http import background
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings

URL = "/v1/kg/films/sparql"
CAST = "SELECT ?o WHERE { <urn:kbqa:e:Big> <urn:kbqa:r:starred> ?o } ORDER BY ?o"
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"


def is_problem(response, status):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()["detail"]


def test_a_query_can_be_sent_in_all_three_ways_of_the_protocol(client):
    server = client()
    answers = [
        server.get(URL, params={"query": CAST}),
        server.post(URL, data={"query": CAST}),
        server.post(URL, content=CAST, headers={"Content-Type": "application/sparql-query; charset=utf-8"}),
    ]
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/sparql-results+json"
        assert answer.headers["kbqa-truncated"] == "false"
        values = [row["o"]["value"] for row in answer.json()["results"]["bindings"]]
        assert values == ["urn:kbqa:e:Elizabeth%20Perkins", "urn:kbqa:e:Tom%20Hanks"]


@pytest.mark.parametrize(
    ("accept", "query", "content_type"),
    [
        ("text/csv", CAST, "text/csv; charset=utf-8"),
        ("text/tab-separated-values", CAST, "text/tab-separated-values; charset=utf-8"),
        ("application/sparql-results+xml", CAST, "application/sparql-results+xml"),
        ("application/json", CAST, "application/sparql-results+json"),
        ("text/html, application/xml;q=0.9, */*;q=0.8", CAST, "application/sparql-results+xml"),
        ("text/csv;q=0.1, application/sparql-results+json;q=0.5", CAST, "application/sparql-results+json"),
        ("text/*", CAST, "text/csv; charset=utf-8"),
        ("*/*", "ASK {}", "application/sparql-results+json"),
        ("", "CONSTRUCT WHERE { ?s ?p <urn:kbqa:e:1988> }", "application/n-triples"),
        ("text/turtle", "CONSTRUCT WHERE { ?s ?p <urn:kbqa:e:1988> }", "text/turtle; charset=utf-8"),
        ("text/turtle", "DESCRIBE <urn:kbqa:e:Big>", "text/turtle; charset=utf-8"),
    ],
)
def test_the_format_is_negotiated(client, accept, query, content_type):
    answer = client().get(URL, params={"query": query}, headers={"Accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == content_type


def test_a_format_that_does_not_fit_is_not_acceptable(client):
    server = client()
    for accept, query in (
        ("text/turtle", CAST),
        ("image/png", CAST),
        ("text/csv;q=0", CAST),
        ("text/csv", "DESCRIBE <x:y>"),
    ):
        is_problem(server.get(URL, params={"query": query}, headers={"Accept": accept}), 406)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("SELECT *\nWHERE { ?s ?p }", 400),
        ("nonsense", 400),
        ("", 400),
        ("INSERT DATA { <x:a> <x:b> <x:c> }", 403),
        ("SELECT * { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }", 403),
        ("SELECT * FROM <http://ex.org/> { ?s ?p ?o }", 403),
        ("SELECT * " + "{" * 5000 + "}" * 5000, 403),
        ("SELECT * { ?s ?p '" + "x" * 100_000 + "' }", 403),
    ],
)
def test_what_is_not_executed_says_why(client, query, status):
    assert is_problem(client().post(URL, data={"query": query}), status)


def test_a_syntax_error_says_where(client):
    assert "error at 2:16" in is_problem(
        client().get(URL, params={"query": "SELECT *\nWHERE { ?s ?p }"}), 400
    )


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"\xff", "application/sparql-query", 400),
        (b"query=%FF", "application/x-www-form-urlencoded", 400),
        (b"query=\xff", "application/x-www-form-urlencoded", 400),
        (b"", "application/x-www-form-urlencoded", 400),
        (b"query=ASK{}&query=ASK{}", "application/x-www-form-urlencoded", 400),
        (b"query=ASK{}&default-graph-uri=x:y", "application/x-www-form-urlencoded", 403),
        (b"update=CLEAR+ALL", "application/x-www-form-urlencoded", 403),
        (b"CLEAR ALL", "application/sparql-update", 403),
        (b"ASK {}", "text/plain", 415),
        (b"ASK {}", "", 415),
    ],
)
def test_other_bodies_are_problems(client, content, content_type, status):
    assert is_problem(client().post(URL, content=content, headers={"Content-Type": content_type}), status)


def test_a_query_to_an_unknown_graph_is_not_found(client):
    is_problem(client().get("/v1/kg/none/sparql", params={"query": "ASK {}"}), 404)


def test_a_result_that_is_cut_says_so(client):
    answer = client(query_max_rows=10).get(URL, params={"query": "SELECT * { ?s ?p ?o }"})
    assert len(answer.json()["results"]["bindings"]) == 10
    assert answer.headers["kbqa-truncated"] == "true"


def test_a_query_bomb_is_killed_while_one_hop_answers_keep_flowing(home):
    settings = KgServerSettings.load(home=home, query_deadline_s=3, query_processes=1, query_queue=1)
    one_hop = {"actions": [{"action": "get_tail_relations", "entity": "Big"}] * 64}
    with (
        background(create_app(settings)) as url,
        httpx.Client(base_url=url, timeout=20) as server,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        assert server.get(URL, params={"query": "ASK {}"}).status_code == 200
        bombs = [
            threads.submit(httpx.get, url + URL, params={"query": f"{BOMB} LIMIT {n}"}, timeout=20)
            for n in (1, 2)
        ]
        one_runs_and_one_waits = {"kbqa_kg_queries_running 1.0", "kbqa_kg_queries_waiting 1.0"}
        while not one_runs_and_one_waits <= set(server.get("/metrics").text.splitlines()):
            assert not any(bomb.done() for bomb in bombs)
        overload = server.get(URL, params={"query": "ASK { ?s ?p 1 }"})
        assert "too many queries" in is_problem(overload, 429)
        assert int(overload.headers["retry-after"]) >= 1
        waits = []
        while not bombs[0].done() and not bombs[1].done():
            started = time.monotonic()
            assert server.post("/v1/kg/films/actions", json=one_hop).status_code == 200
            waits.append(time.monotonic() - started)
        assert len(waits) > 20
        assert statistics.quantiles(waits, n=20)[-1] < 0.5  # a busy machine may hold up one of them
        for bomb in bombs:
            assert "stopped after 3 s" in is_problem(bomb.result(), 422)
            assert bomb.result().json()["type"] == "urn:kbqa:problem:query-timeout"
        assert server.get(URL, params={"query": "ASK { ?s ?p ?o }"}).json()["boolean"] is True
        metrics = server.get("/metrics").text
        assert 'kbqa_kg_queries_total{outcome="QueryTimeout"} 2.0' in metrics
        assert 'kbqa_kg_queries_total{outcome="QueryOverload"} 1.0' in metrics

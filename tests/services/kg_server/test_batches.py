"""Batches with more than look-ups: deadlines, turns, and what is said to come from the cache."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kbqa.errors import ConfigurationError
from kbqa.kg.actions import Action
from kbqa.kg.client import HttpGraphTools
from kbqa.kg.terms import GraphTerms
from services.http import background
from services.kg_server import batches
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings

URL = "/v1/kg/films/actions"
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
ONE_HOP = {"action": "get_tail_relations", "entity": "Big"}


def sparql(query):
    return {"action": "execute_sparql", "query": query}


def results(server, *actions, **headers):
    answer = server.post(URL, json={"actions": actions}, headers=headers)
    assert answer.status_code == 200
    return answer.json()["results"]


def test_a_batch_ends_at_its_deadline_and_what_is_left_answers_as_timeouts(client):
    server = client(batch_deadline_s=3.0, query_deadline_s=2.0)
    assert results(server, sparql("ASK {}"))[0]["status"] == "ok"
    bombs = [sparql(f"{BOMB} LIMIT {n}") for n in range(10)]
    started = time.monotonic()
    *found, last = results(server, *bombs, ONE_HOP)
    assert time.monotonic() - started < 15  # ten bombs of 2 s would take 20 s
    assert [result["kind"] for result in found] == ["query_timeout"] * 10
    assert "stopped after 2 s" in found[0]["message"]
    assert last["message"] == "not executed: the batch had used up its 3 s; send fewer actions"


def test_cached_says_whether_all_of_an_answer_is(client):
    server = client()
    stable, volatile = sparql("SELECT ?o { <urn:kbqa:e:Big> ?p ?o }"), sparql("SELECT (RAND() AS ?x) {}")
    linking = {"action": "link_entities", "question": "who starred in Big?"}

    def cached(**headers):
        found = results(server, stable, volatile, linking, sparql("SELECT * { ?s ?p }"), **headers)
        return [result.get("cached") for result in found]

    assert cached() == [False, False, False, None]
    assert cached() == [True, False, True, None]
    assert cached(**{"Cache-Control": "no-cache"}) == [False, False, False, None]
    route = server.get("/v1/kg/films/sparql", params={"query": stable["query"]})
    assert route.headers["kbqa-cached"] == "true"


def test_a_timeout_is_asked_anew(client):
    server = client(query_deadline_s=1.0)
    assert results(server, sparql("ASK {}"))[0]["status"] == "ok"
    for _ in range(2):
        assert results(server, sparql(BOMB))[0]["kind"] == "query_timeout"
    assert 'kbqa_kg_queries_total{outcome="QueryTimeout"} 2.0' in server.get("/metrics").text


def test_an_action_that_goes_wrong_here_takes_no_neighbour_along(client, monkeypatch):
    execute = batches.execute

    def broken(surroundings, actions, *, graph=None):
        if actions[0].arguments.get("question") == "boom":
            raise ZeroDivisionError
        return execute(surroundings, actions, graph=graph)

    monkeypatch.setattr(batches, "execute", broken)
    server = client()
    bad, good = ({"action": "link_entities", "question": question} for question in ("boom", "Big"))
    for _ in range(2):
        wrong, right = results(server, bad, good)
        assert (wrong["kind"], wrong["code"]) == ("query_failed", "KG_SERVER_ERROR")
        assert right["items"] != []


def test_slow_batches_wait_their_turn_and_starve_no_look_ups(home):
    settings = KgServerSettings.load(
        home=home, redis_url=None, query_deadline_s=1.0, batch_threads=2, batch_queue=2
    )
    with (
        background(create_app(settings)) as url,
        httpx.Client(base_url=url, timeout=30) as server,
        ThreadPoolExecutor(6) as threads,
    ):
        assert len(results(server, *[ONE_HOP] * 64)) == 64

        def slow(number):
            actions = [sparql(f"{BOMB} LIMIT {number}{n}") for n in (1, 2)]
            return httpx.post(url + URL, json={"actions": actions}, timeout=30)

        batches = [threads.submit(slow, number) for number in range(1, 7)]
        waits = []
        while not all(batch.done() for batch in batches):
            started = time.monotonic()
            assert len(results(server, *[ONE_HOP] * 64)) == 64
            waits.append(time.monotonic() - started)
        answers = [batch.result() for batch in batches]
    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [429] * 2
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) >= 1
    assert len(waits) > 20
    assert max(waits) < 1.5


@pytest.mark.parametrize("size", [1, 200])
def test_an_answer_that_is_too_large_is_refused(client, size):
    server = client(max_answer_bytes=2**20)
    hub = {"action": "get_tail_entities", "entity": "hub", "relation": "links"}
    answer = server.post(URL, json={"actions": [hub] * size})
    assert answer.status_code == (200 if size == 1 else 413)


def test_a_recipes_timeout_goes_from_its_client_to_the_query_and_is_bounded_by_the_server(home):
    """Neither the batch's deadline nor the client's timeout, a second each, ends a query of three seconds."""
    settings = {"batch_deadline_s": 1.0, "query_deadline_s": 0.5, "query_deadline_max_s": 3.0}
    app = create_app(KgServerSettings.load(home=home, redis_url=None, **settings))
    bombs = [Action("execute_sparql", {"query": f"{BOMB} LIMIT {n}"}) for n in (1, 2)]
    with background(app, "127.0.0.1", 0) as url, HttpGraphTools(url, timeout_s=1.0) as tools:
        found = GraphTerms(query_timeout_s=50).over(tools).execute("films", bombs)
        assert [result.details.get("timeout_s") for result in found] == [3.0, 3.0]
        assert all("stopped after 3 s" in result.message for result in found)
        other = GraphTerms(encoder="Qwen/Qwen3-Embedding-0.6B").over(tools)
        with pytest.raises(
            ConfigurationError, match="not by Qwen/Qwen3-Embedding-0.6B: let KBQA_KG_SERVER_E"
        ):
            other.execute("films", [Action("find_relation", {"entity": "Big", "relation": "starred"})])

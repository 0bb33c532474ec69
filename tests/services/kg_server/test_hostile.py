"""A server under attack, as a process of its own: it stays up, within its memory, and serves others."""

from __future__ import annotations

import collections
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import hypothesis
import psutil
import pytest

from tests.services.kg_server.hostility import ACTIONS, KEY, SPARQL, attacks

DEADLINE_S, WAIT_S, PROCESSES, MEMORY_MB = 2.0, 5.0, 2, 640
# Of the server's own process, and of the query processes that stand ready.
SERVER_MB, SPARE_MB = 700, 120
KEYS = {"hostile": KEY, "ordinary": "ordinary-0123456789abcdef"}
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Server:
    """A kg_server process over `home`, and what it is made of."""

    def __init__(self, home, **settings):
        self.port, self.operations_port = free_port(), free_port()
        variables = {
            "HOME": home,
            "KG_SERVER_PORT": self.port,
            "KG_SERVER_OPERATIONS_PORT": self.operations_port,
            "KG_SERVER_API_KEYS": ",".join(KEYS.values()),
            "KG_SERVER_QUERY_DEADLINE_S": DEADLINE_S,
            "KG_SERVER_QUERY_WAIT_S": WAIT_S,
            "KG_SERVER_QUERY_PROCESSES": PROCESSES,
            "KG_SERVER_QUERY_MEMORY_MB": MEMORY_MB,
            "KG_SERVER_BATCH_DEADLINE_S": 10,
            "KG_SERVER_BODY_TIMEOUT_S": 2,
            **{f"KG_SERVER_{name.upper()}": value for name, value in settings.items()},
        }
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("KBQA_", "REDIS_"))
        }
        environment = clean | {f"KBQA_{name}": str(value) for name, value in variables.items()}
        self.process = subprocess.Popen([sys.executable, "-m", "services.kg_server"], env=environment)
        self.url = f"http://127.0.0.1:{self.port}"
        for _ in range(1200):
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError("the server did not start")

    def client(self, name):
        return httpx.Client(base_url=self.url, timeout=60, headers={"X-API-Key": KEYS[name]})

    def query_processes(self):
        found = []
        for child in psutil.Process(self.process.pid).children():
            try:
                if "kbqa.kg.sparql.process" in child.cmdline():
                    found.append(child)
            except psutil.NoSuchProcess:
                continue
        return found

    def kill_query_processes(self):
        children = self.query_processes()
        for child in children:
            child.send_signal(signal.SIGKILL)
        psutil.wait_procs(children, timeout=10)

    def resident_mb(self):
        """(of the server, of its query processes together)"""
        own = psutil.Process(self.process.pid)
        children = 0
        for child in own.children():
            try:
                children += child.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return own.memory_info().rss / 2**20, children / 2**20

    def metric(self, name, **labels):
        """The sum of the samples of that name that have these labels."""
        text = httpx.get(f"http://127.0.0.1:{self.operations_port}/metrics", timeout=30).text
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.partition("{")[0].partition(" ")[0] == name and all(label in line for label in wanted)
        )

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(timeout=30) == 0
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def server(home):
    servers = []

    def start(**settings):
        servers.append(Server(home, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def send(attack, server, client):
    """The status that an attack is answered with; 0 if the connection is closed instead."""
    if attack.raw is not None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            try:
                connection.sendall(attack.raw)
                answer = connection.recv(65536)
            except OSError:
                return 0
        words = answer.split(None, 2)
        return int(words[1]) if answer.startswith(b"HTTP/") else 0
    try:
        answer = client.request(attack.method, attack.path, headers=list(attack.headers), content=attack.body)
        return answer.status_code
    except (httpx.NetworkError, httpx.ProtocolError, httpx.InvalidURL):
        return 0


def one_hop(client, _number):
    actions = [{"action": "get_tail_relations", "entity": "Big"}] * 16
    return client.post(ACTIONS, json={"actions": actions}).json()["results"][15]["total"] == 2


def query(client, number):
    text = f"SELECT ?o {{ <urn:kbqa:e:Big> <urn:kbqa:r:starred> ?o }} ORDER BY ?o LIMIT {number + 5}"
    return len(client.get(SPARQL, params={"query": text}).json()["results"]["bindings"]) == 2


def linking(client, number):
    actions = [{"action": "link_entities", "question": f"who starred in Big {number}?"}]
    return client.post(ACTIONS, json={"actions": actions}).json()["results"][0]["items"] != []


def ordinary(server, stop):
    """Ordinary work beside the attacks: (kind, seconds, whether it was answered rightly) of each request."""
    done = []
    with server.client("ordinary") as client:
        for number in itertools.count():
            for ask in (one_hop, query, linking):
                started = time.monotonic()
                try:
                    right = ask(client, number)
                except (httpx.HTTPError, KeyError, ValueError):
                    right = False
                done.append((ask.__name__, time.monotonic() - started, right))
            if stop.wait(0.05):
                break
    return done


def besiege(server, count, *, seed, bombs, record):
    stop, peaks = threading.Event(), []

    def watch():
        while not stop.is_set():
            peaks.append(server.resident_mb())
            time.sleep(0.1)

    def attack_all(share):
        with server.client("hostile") as client:
            return [(attack, send(attack, server, client)) for attack in share]

    planned = attacks(seed, count, bombs=bombs)
    random.Random(seed).shuffle(planned)
    with ThreadPoolExecutor(12) as threads:
        bystander, watcher = threads.submit(ordinary, server, stop), threads.submit(watch)
        try:
            shares = threads.map(attack_all, [planned[n::6] for n in range(6)])
            outcomes = [outcome for share in shares for outcome in share]
        finally:
            stop.set()
        done, _ = bystander.result(), watcher.result()

    statuses = collections.Counter((attack.kind, status) for attack, status in outcomes)
    record("statuses", dict(statuses))
    failures = [(attack.kind, attack.body[:100], status) for attack, status in outcomes if status >= 500]
    assert failures == []
    assert server.process.poll() is None

    own, queries = max(peak[0] for peak in peaks), max(peak[1] for peak in peaks)
    record("resident_mb", (round(own), round(queries)))
    assert own < SERVER_MB
    assert queries < PROCESSES * (MEMORY_MB + SPARE_MB)

    # The histogram has a bound at 2.5 s: half a second after the deadline.
    run = server.metric("kbqa_kg_query_seconds_count")
    late = run - server.metric("kbqa_kg_query_seconds_bucket", le="2.5")
    record("queries", (run, late))
    # The attack itself is a load of two to a core at most: beyond it the machine is busy with much else.
    assert late == 0 or os.getloadavg()[0] > 2 * (os.cpu_count() or 1)

    by_kind = {kind: [seconds for k, seconds, _ in done if k == kind] for kind, _, _ in done}
    record("ordinary", {kind: (len(times), round(max(times), 2)) for kind, times in by_kind.items()})
    assert [entry for entry in done if not entry[2]] == []
    # Its turn comes after one bomb at most.
    assert max(by_kind["query"]) < WAIT_S + DEADLINE_S
    assert max(by_kind["one_hop"]) < 3


def test_a_sample_of_attacks_hurts_nobody(server, record_property):
    besiege(server(), 60, seed=1, bombs=0.1, record=record_property)


@pytest.mark.integration
@pytest.mark.timeout(1800)
def test_a_thousand_attacks_hurt_nobody(server, record_property):
    besiege(server(), 1000, seed=2, bombs=0.1, record=record_property)


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_requests_made_from_the_schema_break_nothing(server, mode):
    import schemathesis  # takes a second, which the other tests need not wait for

    server = server()
    key = {"X-API-Key": KEYS["hostile"]}
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=key)

    @hypothesis.settings(
        max_examples=200, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=schema.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def attack(case):
        assert case.call(base_url=server.url, headers=key).status_code < 500

    attack()
    assert server.process.poll() is None


def test_a_query_process_that_is_killed_in_mid_load_costs_what_was_in_flight(server):
    server = server(query_deadline_s=30)
    with server.client("ordinary") as client, ThreadPoolExecutor(1) as threads:
        assert client.get(SPARQL, params={"query": "ASK { ?s ?p 0 }"}).status_code == 200
        bomb = threads.submit(client.get, SPARQL, params={"query": BOMB})
        time.sleep(1.0)
        busiest = max(server.query_processes(), key=lambda child: sum(child.cpu_times()[:2]))
        busiest.send_signal(signal.SIGKILL)
        lost = bomb.result()
        assert (lost.status_code, lost.json()["type"]) == (503, "urn:kbqa:problem:query-lost")
        server.kill_query_processes()
        statuses = [
            client.get(SPARQL, params={"query": f"ASK {{ ?s ?p {n} }}"}).status_code for n in range(1, 9)
        ]
        assert statuses == [200] * 8
        action = {"action": "execute_sparql", "query": f"{BOMB} LIMIT 2"}
        bomb = threads.submit(client.post, ACTIONS, json={"actions": [action]})
        time.sleep(1.0)
        server.kill_query_processes()
        assert bomb.result().json()["results"][0]["kind"] == "backend_unavailable"

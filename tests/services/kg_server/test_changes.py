"""`POST /v1/kg/{kg}/changes` over HTTP."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from kbqa.errors import GraphChangeError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.client import HttpGraphTools
from services.access.keys import KeyFile
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings

EX = "http://x/"
FACTS = "".join(f"<{EX}e{n}> <{EX}knows> <{EX}e{n + 1}> .\n" for n in range(5))
NEW = f"<{EX}e0> <{EX}likes> <{EX}tea> ."


@pytest.fixture
def home(tmp_path):
    (tmp_path / "g.nt").write_text(FACTS)
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("g", tmp_path / "g.nt")
    catalog.close()
    return tmp_path / "home"


@pytest.fixture
def serve(home):
    opened = []

    def make(**settings):
        settings = {"home": home, "redis_url": None, "query_deadline_s": 60, **settings}
        client = TestClient(create_app(KgServerSettings.load(**settings)), "http://127.0.0.1")
        opened.append(client.__enter__())
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


def send(client, **batch):
    return client.post("/v1/kg/g/changes", json=batch)


def likes(client):
    action = {"action": "get_tail_entities", "entity": f"{EX}e0", "relation": f"{EX}likes"}
    answer = client.post("/v1/kg/g/actions", json={"actions": [action]}).json()
    [result] = answer["results"]
    return answer["version"], [item["id"] for item in result.get("items", [])]


def test_a_change_is_in_the_next_answer_of_every_kind_although_the_last_ones_were_cached(serve):
    client = serve()
    query = {"query": f"SELECT ?o {{ <{EX}e0> <{EX}likes> ?o }}"}

    def rows():
        return len(client.get("/v1/kg/g/sparql", params=query).json()["results"]["bindings"])

    assert (likes(client)[1], rows()) == ([], 0)
    changed = send(client, insert=NEW, delete=f"<{EX}e4> <{EX}knows> <{EX}e5> .").json()
    assert (changed["inserted"], changed["deleted"], changed["triples"]) == (1, 1, 5)
    assert changed["new_relations"] == [f"{EX}likes"]
    assert likes(client) == (changed["version"], [f"{EX}tea"])
    assert rows() == 1
    assert client.get("/v1/kg").json()["graphs"][0]["version"] == changed["version"]
    changed = send(client, delete=NEW).json()
    assert changed["lost_relations"] == [f"{EX}likes"]
    assert (likes(client)[1], rows()) == ([], 0)
    assert 'kbqa_kg_changes_total{graph="g",outcome="deleted"} 2.0' in client.get("/metrics").text


def test_triples_and_updates_are_bodies_of_their_own(serve):
    client = serve()
    url = "/v1/kg/g/changes"
    sent = client.post(url, content=NEW, headers={"Content-Type": "application/n-triples"})
    assert sent.json()["inserted"] == 1
    update = f"DELETE {{ ?s <{EX}likes> ?o }} INSERT {{ ?s <{EX}drinks> ?o }} WHERE {{ ?s <{EX}likes> ?o }}"
    sent = client.post(url, content=update, headers={"Content-Type": "application/sparql-update"})
    assert (sent.json()["inserted"], sent.json()["deleted"]) == (1, 1)
    assert client.post(url, content=NEW, headers={"Content-Type": "text/turtle"}).status_code == 415


@pytest.mark.parametrize(
    ("batch", "status", "told"),
    [
        ({"insert": f"{NEW}\nnonsense"}, 400, "insert, line 2"),
        ({"delete": "_:b <http://x/r> <http://x/o> ."}, 400, "delete, line 1: a blank node"),
        ({"remove": NEW}, 400, "remove"),
        ({"delete": FACTS}, 400, "at least one"),
        ({"insert": NEW * 1000}, 413, "kbqa kg update"),
    ],
)
def test_a_batch_that_cannot_be_applied_changes_nothing_and_says_why(serve, batch, status, told):
    client = serve(max_body_bytes=4096)
    version = likes(client)[0]
    answer = send(client, **batch)
    assert (answer.status_code, told in answer.json()["detail"]) == (status, True), answer.text
    assert likes(client) == (version, [])


def test_a_graph_that_is_not_loaded_is_not_found(serve):
    answer = serve().post("/v1/kg/nowhere/changes", json={"insert": NEW})
    assert answer.status_code == 404


def test_a_request_that_is_repeated_with_its_key_is_answered_as_before(serve):
    client = serve()
    headers = {"Idempotency-Key": "nightly-1"}
    first = client.post("/v1/kg/g/changes", json={"insert": NEW}, headers=headers).json()
    send(client, delete=NEW)
    assert client.post("/v1/kg/g/changes", json={"insert": NEW}, headers=headers).json() == first
    assert likes(client)[1] == []
    other = client.post("/v1/kg/g/changes", json={"delete": NEW}, headers=headers)
    assert (other.status_code, "choose a new one" in other.json()["detail"]) == (409, True)


def test_only_a_key_with_the_right_to_change_may_do_so_and_only_its_graphs(serve, tmp_path):
    keys = KeyFile(tmp_path / "keys.json")
    _, reader = keys.create("reader")
    _, writer = keys.create("writer", changes=True, graphs=("g",))
    client = serve(keys_file=keys.path)

    def status(key, kg="g"):
        headers = {"Authorization": f"Bearer {key}"}
        return client.post(f"/v1/kg/{kg}/changes", json={"insert": NEW}, headers=headers).status_code

    assert (status("wrong"), status(reader), status(writer), status(writer, "other")) == (401, 403, 200, 403)


def test_the_client_of_the_core_library_changes_a_graph(serve):
    with HttpGraphTools("http://127.0.0.1") as tools:
        tools._client = serve()  # the same server, without a socket
        changed = tools.change("g", insert=NEW, key="k")
        assert (changed.inserted, changed.kg) == (1, "g")
        assert tools.change("g", update=f"DELETE WHERE {{ ?s <{EX}likes> ?o }}").deleted == 1
        with pytest.raises(GraphChangeError, match="line 1"):
            tools.change("g", insert="nonsense")

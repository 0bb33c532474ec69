"""Keys, rates and concurrency: admission control."""

from __future__ import annotations

import concurrent.futures
import time

import httpx
import pytest

from kbqa.errors import ConfigurationError, GraphUnavailableError
from kbqa.kg.client import HttpGraphTools
from services.access.keys import KeyFile
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.limits import ConcurrencyExceededError, Running
from services.kg_server.settings import KgServerSettings

KEY = "0123456789abcdef-one"
OTHER = "0123456789abcdef-two"


def is_problem(response, status):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    return response.json()["detail"]


def test_without_keys_everybody_may_ask(client):
    assert client().get("/v1/kg").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer"},
        {"X-API-Key": ""},
        {"X-API-Key": b"\xff\xfe"},
        {"Authorization": "Bearer wrong", "X-API-Key": KEY},
    ],
)
def test_with_keys_strangers_are_refused(client, headers):
    response = client(api_keys=f"{KEY}, {OTHER}").get("/v1/kg", headers=headers)
    assert "Authorization: Bearer KEY" in is_problem(response, 401)
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("headers", [{"Authorization": f"bearer {OTHER}"}, {"X-API-Key": KEY}])
def test_a_key_is_accepted_in_either_header(client, headers):
    assert client(api_keys=f"{KEY}, {OTHER}").get("/v1/kg", headers=headers).status_code == 200


def test_with_keys_probes_stay_open_and_metrics_move_to_a_port_of_their_own(client):
    server = client(api_keys=KEY)
    assert server.get("/healthz").status_code == 200
    for path in ("/metrics", "/docs", "/openapi.json", "/none"):
        is_problem(server.get(path), 401)
    assert server.get("/metrics", headers={"X-API-Key": KEY}).status_code == 404
    with background(server.app.state.operations) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert 'kbqa_kg_refusals_total{reason="key-required"} 4.0' in httpx.get(f"{url}/metrics").text
        assert KEY not in httpx.get(f"{url}/metrics").text


def test_keys_can_be_kept_as_hashes_in_a_file(client, tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    _, key = file.create("trainer")
    server = client(keys_file=file.path, api_keys=OTHER)
    for sent in (key, OTHER):
        assert server.get("/v1/kg", headers={"X-API-Key": sent}).status_code == 200
    assert server.get("/v1/kg", headers={"X-API-Key": KEY}).status_code == 401


def test_a_key_of_the_file_may_have_a_rate_of_its_own_and_be_revoked(client, tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    _, slow = file.create("slow", rate="1/minute")
    _, fast = file.create("fast")
    server = client(keys_file=file.path)
    ask = [server.get("/v1/kg", headers={"X-API-Key": key}).status_code for key in (slow, slow, fast, fast)]
    assert ask == [200, 429, 200, 200]
    file.revoke("fast")
    time.sleep(0.6)
    assert '"fast" was revoked' in is_problem(server.get("/v1/kg", headers={"X-API-Key": fast}), 401)


def test_a_key_for_some_graphs_opens_no_others(client, tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    _, key = file.create("reports", graphs=("books", "papers"))
    server, headers = client(keys_file=file.path), {"X-API-Key": key}
    assert server.get("/v1/kg", headers=headers).json() == {"graphs": []}
    for kg in ("films", "nothing"):
        refused = server.post(f"/v1/kg/{kg}/actions", json={"actions": []}, headers=headers)
        assert "may ask about books, papers" in is_problem(refused, 403), "whether the graph exists or not"
    missing = server.post("/v1/kg/books/actions", json={"actions": []}, headers=headers)
    assert "films" not in is_problem(missing, 404)


@pytest.mark.parametrize(
    ("keys", "content", "says"),
    [
        ("short", None, "5 characters can be guessed"),
        ("", None, "0 characters can be guessed"),
        (None, "trainer\n", "is not a key file"),
        (None, None, "does not exist: create a key with kbqa keys create NAME --file"),
    ],
)
def test_invalid_keys_are_a_wrong_setting(tmp_path, keys, content, says):
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
    settings = KgServerSettings.load(home=tmp_path, api_keys=keys, keys_file=path if keys is None else None)
    with pytest.raises(ConfigurationError, match=says) as caught:
        settings.accepted_keys()
    assert "short" not in str(caught.value)


def test_a_client_over_its_rate_is_told_when_to_come_back(client):
    server = client(rate="1/2second")
    assert server.get("/v1/kg").status_code == 200
    refused = server.get("/v1/kg")
    assert "more requests than 1/2second" in is_problem(refused, 429)
    assert refused.headers["retry-after"] in ("1", "2")
    assert server.get("/healthz").status_code == 200
    time.sleep(2.1)
    assert server.get("/v1/kg").status_code == 200


def test_a_rate_that_is_none_is_a_wrong_setting():
    with pytest.raises(ConfigurationError, match="is not a limit: write 60/minute"):
        KgServerSettings.load(rate="fast")


def test_the_client_of_the_other_services_sends_its_key(home):
    with background(create_app(KgServerSettings.load(home=home, api_keys=KEY))) as url:
        with HttpGraphTools(url, api_key=KEY) as tools:
            assert [graph.name for graph in tools.graphs()] == ["films"]
        with (
            HttpGraphTools(url) as tools,
            pytest.raises(GraphUnavailableError, match="KBQA_KG_SERVER_API_KEY"),
        ):
            tools.graphs()


def test_each_key_has_a_rate_of_its_own(client):
    server = client(rate="1/minute", api_keys=f"{KEY},{OTHER}")
    ask = [server.get("/v1/kg", headers={"X-API-Key": key}).status_code for key in (KEY, KEY, OTHER)]
    assert ask == [200, 429, 200]


def test_requests_of_a_client_at_the_same_time_are_bounded(home):
    settings = KgServerSettings.load(home=home, client_concurrency=2, query_deadline_s=1.0)
    bomb = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
    with background(create_app(settings)) as url, concurrent.futures.ThreadPoolExecutor(4) as threads:
        bombs = [
            threads.submit(httpx.get, f"{url}/v1/kg/films/sparql", params={"query": f"{bomb} # {n}"})
            for n in range(2)
        ]
        time.sleep(0.5)
        refused = httpx.get(f"{url}/v1/kg")
        assert "running" in is_problem(refused, 429)
        assert refused.headers["retry-after"] == "1"
        for bomb in bombs:
            bomb.result()
        assert httpx.get(f"{url}/v1/kg").status_code == 200


def test_the_requests_of_a_client_and_of_all_are_bounded():
    running = Running(of_client=2, of_all=3)
    running.begin("a")
    running.begin("a")
    with pytest.raises(ConcurrencyExceededError, match="you have too many"):
        running.begin("a")
    running.begin("b")
    with pytest.raises(ConcurrencyExceededError, match="^too many"):
        running.begin("c")
    running.end("a")
    running.begin("c")

"""Keys, rates and concurrency: admission control."""

from __future__ import annotations

import concurrent.futures
import hashlib
import time

import httpx
import pytest

from kbqa.errors import ConfigurationError, GraphUnavailableError
from kbqa.kg.client import HttpGraphTools
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.keys import ApiKeys
from services.kg_server.limits import ClientLimits
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
        assert 'kbqa_kg_refusals_total{reason="no key"} 4.0' in httpx.get(f"{url}/metrics").text
        assert KEY not in httpx.get(f"{url}/metrics").text


def test_keys_can_be_kept_as_hashes_in_a_file(client, tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# team\n\ntrainer {hashlib.sha256(KEY.encode()).hexdigest()}\n")
    keys = ApiKeys.load(None, path)
    assert (keys.name_of(KEY.encode()), keys.name_of(OTHER.encode())) == ("trainer", None)
    server = client(api_keys_file=path, api_keys=OTHER)
    for key in (KEY, OTHER):
        assert server.get("/v1/kg", headers={"X-API-Key": key}).status_code == 200


@pytest.mark.parametrize(
    ("keys", "content", "says"),
    [
        ("short", None, "5 characters can be guessed"),
        ("", None, "0 characters can be guessed"),
        (None, "trainer\n", ":1 is not a name and a SHA-256"),
        (None, f"# nothing\nx {'g' * 64}\n", ":2 is not a name"),
        (None, "# nothing\n", "contains no keys"),
        (None, None, "cannot be read"),
    ],
)
def test_keys_that_are_none_are_a_wrong_setting(tmp_path, keys, content, says):
    path = tmp_path / "keys"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=says) as caught:
        ApiKeys.load(keys, path if keys is None else None)
    assert "short" not in str(caught.value)


def test_a_client_over_its_rate_is_told_when_to_come_back(client):
    server = client(client_requests_per_s=0.5)
    assert server.get("/v1/kg").status_code == 200
    refused = server.get("/v1/kg")
    assert "larger batches" in is_problem(refused, 429)
    assert refused.headers["retry-after"] == "2"
    assert server.get("/healthz").status_code == 200
    time.sleep(2.1)
    assert server.get("/v1/kg").status_code == 200


def test_a_client_that_was_quiet_may_send_the_requests_of_two_seconds_at_once(monkeypatch):
    now = 100.0
    monkeypatch.setattr("services.kg_server.limits.time.monotonic", lambda: now)
    limits = ClientLimits(per_s=2.0, concurrent=10, in_all=10)
    assert [limits.enter("a") for _ in range(5)] == [None] * 4 + [("rate", 0.5)]
    now += 0.5
    assert [limits.enter("a") for _ in range(2)] == [None, ("rate", 0.5)]
    now += 60
    assert [limits.enter("a") is None for _ in range(5)] == [True] * 4 + [False]


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
    server = client(client_requests_per_s=0.5, api_keys=f"{KEY},{OTHER}")
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
        assert "under way" in is_problem(refused, 429)
        assert refused.headers["retry-after"] == "1"
        for bomb in bombs:
            bomb.result()
        assert httpx.get(f"{url}/v1/kg").status_code == 200


def test_what_is_remembered_of_clients_is_bounded_and_loses_none_that_is_under_way():
    limits = ClientLimits(per_s=1e-6, concurrent=1, in_all=100_000)  # one request, and for days no other
    assert limits.enter("busy") is None
    for number in range(10_050):
        assert limits.enter(str(number)) is None
        limits.leave(str(number))
    assert limits.enter("0") is None  # forgotten, and with it what it had sent
    refusal = limits.enter("10049")
    assert refusal is not None
    assert refusal[0] == "rate"
    assert limits.enter("busy") == ("client concurrency", 1.0)


def test_the_whole_server_is_bounded_too():
    limits = ClientLimits(per_s=None, concurrent=10, in_all=1)
    assert limits.enter("a") is None
    assert limits.enter("b") == ("concurrency", 1.0)
    limits.leave("a")
    assert limits.enter("b") is None

"""Every route of the gateway, and everybody who may come: strangers, keys of all kinds, other sites."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from services.access.keys import KeyFile
from services.gateway import __main__ as starting
from services.gateway import collector
from services.gateway.access.audit import strangers_path
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite

STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))
ASKED = {"question": "Who starred in Big?", "kg": "films"}
CHAT = {"model": "kbqa/films", "messages": [{"role": "user", "content": "Who starred in Big?"}]}
HEALTH = {("GET", "/healthz"), ("GET", "/readyz")}

# Every route, with a request for it: path, body, and the status that it has for a key of every graph
# and for one of another graph. A route that is not here fails the test: say who may use it.
REQUESTS = {
    ("POST", "/v1/answer"): ("/v1/answer", ASKED, 200, 403),
    ("GET", "/v1/answers/{answer_id}"): ("/v1/answers/{own}", None, 200, 404),
    ("POST", "/v1/batches"): ("/v1/batches", ASKED, 202, 202),
    ("GET", "/v1/batches"): ("/v1/batches", None, 200, 200),
    ("GET", "/v1/batches/{batch_id}"): ("/v1/batches/none", None, 404, 404),
    ("GET", "/v1/batches/{batch_id}/answers"): ("/v1/batches/none/answers", None, 404, 404),
    ("POST", "/v1/batches/{batch_id}/cancel"): ("/v1/batches/none/cancel", None, 404, 404),
    ("DELETE", "/v1/batches/{batch_id}"): ("/v1/batches/none", None, 404, 404),
    ("POST", "/v1/feedback"): ("/v1/feedback", {"answer_id": "{own}", "verdict": "right"}, 201, 404),
    ("POST", "/v1/chat/completions"): ("/v1/chat/completions", CHAT, 200, 403),
    ("GET", "/text2sparql"): ("/text2sparql?dataset=films&question=Big", None, 200, 404),
    ("GET", "/v1/models"): ("/v1/models", None, 200, 200),
    ("GET", "/v1/models/{model:path}"): ("/v1/models/kbqa/films", None, 200, 404),
    ("GET", "/v1/kg"): ("/v1/kg", None, 200, 200),
    ("GET", "/v1/kg/{kg}/names"): ("/v1/kg/films/names?text=Big", None, 200, 403),
    ("GET", "/v1/kg/{kg}/examples"): ("/v1/kg/films/examples", None, 200, 403),
    ("GET", "/v1/policies"): ("/v1/policies", None, 200, 200),
    ("GET", "/v1/reports"): ("/v1/reports", None, 200, 403),
    ("GET", "/v1/reports/{run}"): ("/v1/reports/none", None, 404, 403),
    ("GET", "/v1/runs/{run}/steps"): ("/v1/runs/none/steps", None, 404, 403),
    ("GET", "/v1/runs/{run}/groups"): ("/v1/runs/none/groups?step=1", None, 404, 403),
    ("GET", "/v1/runs/{run}/groups/{step}/{group}"): ("/v1/runs/none/groups/1/g", None, 404, 403),
    ("GET", "/"): ("/", None, 200, 200),
    ("GET", "/reports"): ("/reports", None, 200, 200),
    ("GET", "/runs/{run}"): ("/runs/some", None, 200, 200),
    ("GET", "/static/{name}"): ("/static/ask.js", None, 200, 200),
    ("GET", "/docs"): ("/docs", None, 200, 200),
    ("GET", "/docs/oauth2-redirect"): ("/docs/oauth2-redirect", None, 200, 200),
    ("GET", "/redoc"): ("/redoc", None, 200, 200),
    ("GET", "/openapi.json"): ("/openapi.json", None, 200, 200),
}
PAGE = {"/", "/reports", "/runs/{run}", "/static/{name}"}


@pytest.fixture
def keys(tmp_path):
    """Keys by what is the matter with them."""
    file = KeyFile(tmp_path / "gateway" / "keys.json")
    made = {
        name: file.create(name, graphs=graphs, expires=expires)[1]
        for name, graphs, expires in (
            ("right", ("*",), datetime.now(UTC) + timedelta(days=1)),
            ("other", ("*",), None),
            ("of another graph", ("rdf",), None),
            ("expired", ("*",), datetime.now(UTC) - timedelta(days=1)),
            ("revoked", ("*",), None),
        )
    }
    file.revoke("revoked")
    return made | {"wrong": f"{made['right']}x", "no": None}


def bearer(key):
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def leaves(routes):
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from leaves(inner.routes) if inner is not None else (route,)


def routes_of(app):
    """Method and template of every route there is."""
    return {
        (method, route.path)
        for route in leaves(app.routes)
        for method in route.methods - {"HEAD"}
        if (method, route.path) not in HEALTH
    }


def send(client, method, path, body, key, own=""):
    body = None if body is None else json.loads(json.dumps(body).replace("{own}", own))
    return client.request(method, path.replace("{own}", own), json=body, headers=bearer(key))


def is_problem(response, status):
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    return response.json()["detail"]


def test_there_is_no_route_of_which_it_is_not_said_who_may_use_it(gateway, keys):
    assert routes_of(gateway(FixedPolicy(STARS)).app) == set(REQUESTS)


@pytest.mark.parametrize("key", ["no", "wrong", "expired", "revoked"])
def test_nothing_but_health_answers_who_has_no_valid_key(gateway, keys, key):
    client = gateway(FixedPolicy(STARS))
    for (method, _), (path, body, _, _) in REQUESTS.items():
        response = send(client, method, path, body, keys[key])
        assert "send a key as Authorization: Bearer KEY" in is_problem(response, 401), path
        assert response.headers["www-authenticate"] == "Bearer"
    is_problem(send(client, "GET", "/metrics", None, keys[key]), 401)
    is_problem(send(client, "OPTIONS", "/v1/answer", None, keys[key]), 401)
    for path in ("/healthz", "/readyz"):
        assert send(client, "GET", path, None, keys[key]).status_code == 200


def test_a_valid_key_opens_what_it_is_for(gateway, keys):
    client = gateway(FixedPolicy(STARS))
    own = send(client, "POST", "/v1/answer", ASKED, keys["right"]).json()["id"]
    for key, place in (("right", 2), ("of another graph", 3)):
        statuses = {
            route: send(client, route[0], request[0], request[1], keys[key], own).status_code
            for route, request in REQUESTS.items()
        }
        assert statuses == {route: request[place] for route, request in REQUESTS.items()}


def test_what_another_key_was_answered_does_not_exist(gateway, keys):
    client = gateway(FixedPolicy(STARS))
    own = send(client, "POST", "/v1/answer", ASKED, keys["right"]).json()["id"]
    assert send(client, "GET", f"/v1/answers/{own}", None, keys["right"]).json()["id"] == own
    unknown = is_problem(send(client, "GET", f"/v1/answers/{own[:-1]}0", None, keys["other"]), 404)
    theirs = is_problem(send(client, "GET", f"/v1/answers/{own}", None, keys["other"]), 404)
    assert theirs.replace(own, "") == unknown.replace(f"{own[:-1]}0", "")
    feedback = {"answer_id": own, "verdict": "right"}
    is_problem(send(client, "POST", "/v1/feedback", feedback, keys["other"]), 404)


def test_answers_to_one_key_do_not_displace_those_to_another(gateway, keys):
    client = gateway(FixedPolicy(STARS), answers_kept=1)

    def ask(key: str) -> str:
        return send(client, "POST", "/v1/answer", ASKED, keys[key]).json()["id"]

    theirs, displaced, own = ask("other"), ask("right"), ask("right")
    assert [
        send(client, "GET", f"/v1/answers/{id_}", None, keys[key]).status_code
        for key, id_ in (("other", theirs), ("right", displaced), ("right", own))
    ] == [200, 404, 200]


def test_a_key_does_not_learn_which_other_graphs_there_are(gateway, keys):
    client = gateway(FixedPolicy(STARS))
    key = keys["of another graph"]
    assert [graph["name"] for graph in send(client, "GET", "/v1/kg", None, key).json()["graphs"]] == ["rdf"]
    assert [m["id"] for m in send(client, "GET", "/v1/models", None, key).json()["data"]] == ["kbqa/rdf"]
    details = {
        is_problem(send(client, "POST", "/v1/answer", {**ASKED, "kg": kg}, key), 403).replace(kg, "X")
        for kg in ("films", "none")
    }
    assert len(details) == 1


def test_metrics_are_on_a_port_of_their_own(gateway, keys):
    client = gateway(FixedPolicy(STARS))
    send(client, "GET", "/v1/kg", None, None)
    is_problem(send(client, "GET", "/metrics", None, keys["right"]), 404)
    with background(client.app.state.operations) as url:
        text = httpx.get(f"{url}/metrics").text
        assert 'kbqa_gateway_refusals_total{reason="key-required"} 1.0' in text
        assert httpx.get(f"{url}/readyz").status_code == 200
    assert keys["right"] not in text


def test_metrics_of_its_vllm_are_where_its_own_are(gateway, tmp_path):
    nobody = {"engine": "vllm", "vllm_urls": ("http://127.0.0.1:9",)}
    is_problem(gateway(FixedPolicy(STARS), **nobody).get("/engine/metrics"), 503)
    closed = gateway(FixedPolicy(STARS), **nobody, require_keys=True)
    is_problem(closed.get("/engine/metrics"), 401)
    with background(closed.app.state.operations) as url:
        is_problem(httpx.get(f"{url}/engine/metrics"), 503)
    is_problem(gateway(FixedPolicy(STARS)).get("/engine/metrics"), 404)


def test_the_page_alone_can_be_opened_to_strangers(gateway, keys):
    client = gateway(FixedPolicy(STARS), open_page=True)
    for (method, template), (path, body, _, _) in REQUESTS.items():
        status = send(client, method, path, body, None).status_code
        assert status == (200 if template in PAGE else 401), path


def test_without_keys_everybody_may_ask_and_read(gateway):
    client = gateway(FixedPolicy(STARS))
    own = send(client, "POST", "/v1/answer", ASKED, None).json()["id"]
    assert send(client, "GET", f"/v1/answers/{own}", None, None).status_code == 200
    assert client.get("/metrics").status_code == 200
    assert client.app.state.operations is None


def test_keys_can_be_required_before_there_are_any(gateway):
    is_problem(gateway(FixedPolicy(STARS), require_keys=True).get("/v1/kg"), 401)
    assert gateway(FixedPolicy(STARS), require_keys=False).get("/v1/kg").status_code == 200


def test_a_browser_asks_for_the_key_as_a_password_and_sends_it_to_its_own_site_only(gateway, keys):
    client = gateway(FixedPolicy(STARS))
    challenge = client.get("/", headers={"Accept": "text/html"}).headers.get_list("www-authenticate")
    assert [text.split()[0] for text in challenge] == ["Bearer", "Basic"]
    secret = base64.b64encode(f"anybody:{keys['right']}".encode()).decode()
    basic = {"Authorization": f"Basic {secret}"}
    assert client.get("/", headers=basic).status_code == 200
    for where, status in (
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://kbqa.example"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ):
        assert client.post("/v1/answer", json=ASKED, headers=basic | where).status_code == status, where
    # A key that a script sends on purpose comes from wherever it likes.
    from_afar = bearer(keys["right"]) | {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/v1/answer", json=ASKED, headers=from_afar).status_code == 200
    for broken in ("Basic", "Basic !", "Basic e30="):
        is_problem(client.get("/", headers={"Authorization": broken}), 401)


def test_a_key_has_its_rate_and_its_quota(gateway, tmp_path):
    file = KeyFile(tmp_path / "gateway" / "keys.json")
    rated = file.create("rated", rate="2/minute")[1]
    short = file.create("short", quota="1/day")[1]
    client = gateway(FixedPolicy(STARS), rate="100/minute")
    assert [send(client, "GET", "/v1/policies", None, rated).status_code for _ in range(3)] == [200, 200, 429]
    refused = send(client, "GET", "/v1/policies", None, rated)
    assert "more requests than 2/minute" in is_problem(refused, 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert send(client, "POST", "/v1/answer", {**ASKED, "kg": 7}, short).status_code == 422
    assert send(client, "POST", "/v1/answer", ASKED, short).status_code == 200
    refused = send(client, "POST", "/v1/chat/completions", CHAT, short)
    assert "more questions than 1/day" in is_problem(refused, 429)
    assert int(refused.headers["retry-after"]) > 3600
    assert send(client, "GET", "/v1/policies", None, short).status_code == 200


def test_behind_a_trusted_proxy_each_address_has_a_quota_of_its_own(kg_server_url, tmp_path):
    settings = GatewaySettings.load(home=tmp_path, kg_server_url=kg_server_url, reader=False, quota="1/day")
    behind = httpx.HTTPTransport(local_address="127.0.0.2")

    def ask(proxy: httpx.Client, address: str) -> int:
        return proxy.post("/v1/answer", json=ASKED, headers={"X-Forwarded-For": address}).status_code

    app = create_app(settings, FixedPolicy(STARS))
    with (
        background(app, proxies=("127.0.0.2",)) as url,
        httpx.Client(transport=behind, base_url=url, timeout=60) as proxy,
    ):
        assert [ask(proxy, f"192.0.2.{last}") for last in (7, 8, 7)] == [200, 200, 429]


def test_the_gateway_trusts_the_proxies_that_its_operator_names(monkeypatch, tmp_path):
    served = []
    monkeypatch.setattr(starting, "serve", lambda *_, proxies, **__: served.append(proxies))
    monkeypatch.setattr(starting, "configure_logging", lambda *_: None)
    monkeypatch.setattr(collector, "look_seldom", lambda: None)
    monkeypatch.setenv("KBQA_GATEWAY_TRUSTED_PROXIES", "10.0.0.0/8, 192.0.2.1")
    assert starting.main(["--home", str(tmp_path)]) == 0
    assert served == [("10.0.0.0/8", "192.0.2.1")]


def test_every_request_leaves_a_line_and_no_question_unless_that_is_wanted(gateway, keys, tmp_path):
    for wanted in (False, True):
        log = tmp_path / f"audit-{wanted}.jsonl"
        client = gateway(FixedPolicy(STARS), audit_log=log, audit_questions=wanted)
        own = client.post(
            "/v1/answer", json=ASKED, headers=bearer(keys["right"]) | {"X-Request-ID": "mine-1"}
        ).json()["id"]
        client.post("/v1/answer", json=ASKED | {"stream": True}, headers=bearer(keys["right"]))
        client.get("/v1/kg")
        client.get("/healthz")
        whole, streamed = map(json.loads, log.read_text().splitlines())
        # In a file of their own, strangers rotate nobody else's entries away.
        [refused] = map(json.loads, strangers_path(log).read_text().splitlines())
        assert whole["request_id"] == "mine-1"
        assert (whole["key_name"], whole["graph"], whole["answer"]) == ("right", "films", own)
        assert (whole["method"], whole["route"], whole["status"]) == ("POST", "/v1/answer", 200)
        assert whole["elapsed_ms"] > 0
        assert whole["complete"] is streamed["complete"] is True
        assert (refused["status"], refused["refusal"]) == (401, "key-required")
        assert "key" not in refused
        assert ("Who starred" in log.read_text()) == wanted
        assert keys["right"] not in log.read_text()


def test_answers_tell_browsers_to_do_nothing_with_them(gateway):
    client = gateway(FixedPolicy(STARS))
    for path in ("/", "/v1/kg", "/none", "/static/ask.js"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert client.get("/v1/kg").headers["cache-control"] == "no-store"


def test_sites_that_are_listed_may_ask_from_their_pages(gateway, keys):
    client = gateway(FixedPolicy(STARS), cors_origins="https://app.example, https://b.example")
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    allowed = client.options("/v1/answer", headers=preflight | {"Origin": "https://app.example"})
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in allowed.headers
    refused = client.options("/v1/answer", headers=preflight | {"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in refused.headers
    # Also what fails can be read there.
    failed = client.post("/v1/answer", json=ASKED, headers={"Origin": "https://b.example"})
    assert (failed.status_code, failed.headers["access-control-allow-origin"]) == (401, "https://b.example")

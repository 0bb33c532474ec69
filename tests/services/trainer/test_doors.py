"""Who may operate a trainer: keys, names in Host, pages of other sites, and recipes of requests."""

from __future__ import annotations

import base64

import pytest
from fastapi.testclient import TestClient

from kbqa.errors import ConfigurationError
from services.trainer.app import create_app
from services.trainer.settings import TrainerSettings

KEY = "a-key-of-an-operator"
CHANGES = ("/v1/runs/none/stop", "/v1/runs/none/resume", "/v1/runs/none/promote")


@pytest.fixture
def trainer(tmp_path):
    """`trainer(url, api_keys=…)`: a client of a trainer without runs; its broker is not asked."""

    def make(url: str = "http://127.0.0.1:8003", **settings) -> TestClient:
        return TestClient(create_app(TrainerSettings.load(home=tmp_path, **settings)), url)

    return make


def kind(response) -> str:
    return response.json()["type"].rpartition(":")[2]


def test_beyond_this_machine_a_trainer_does_not_start_without_keys(trainer):
    with pytest.raises(ConfigurationError, match="KBQA_TRAINER_API_KEYS"):
        trainer(host="0.0.0.0")
    assert trainer(host="0.0.0.0", require_keys=False).get("/v1/runs").status_code == 200
    assert trainer(host="0.0.0.0", api_keys=KEY).get("/v1/runs").status_code == 401
    assert trainer(host="::1").get("/v1/runs").status_code == 200


def test_with_keys_only_health_checks_are_open(trainer):
    guarded = trainer(api_keys=KEY)
    for path in ("/", "/docs", "/openapi.json", "/v1/runs", "/static/dom.js", "/nowhere"):
        assert guarded.get(path).status_code == 401, path
    assert guarded.get("/healthz").status_code == 200
    assert guarded.get("/metrics", headers={"X-API-Key": KEY}).status_code == 404, "on the operations port"
    for headers in (
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": "Basic " + base64.b64encode(f"any:{KEY}".encode()).decode()},
    ):
        assert guarded.get("/v1/runs", headers=headers).status_code == 200


def test_a_browser_asks_its_user_for_the_key(trainer):
    page = trainer(api_keys=KEY).get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert any(value.startswith("Basic") for value in page.headers.get_list("www-authenticate"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8003", "[::1]:8003", "192.168.1.7", "kg.example"])
def test_own_names_are_accepted(trainer, host):
    assert trainer(allowed_hosts="kg.example").get("/v1/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8003", "localhost.evil.example", "127.0.0.1.evil.example", "[", ""]
)
def test_without_keys_a_rebound_name_reaches_nothing(trainer, host):
    refused = trainer().get("/v1/runs", headers={"Host": host})
    assert (refused.status_code, kind(refused)) == (421, "foreign-host")


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9000", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_change_nothing(trainer, path, headers):
    refused = trainer().post(path, headers=headers)
    assert (refused.status_code, kind(refused)) == (403, "cross-site")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:8003", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://127.0.0.1:8003"},
        {"Origin": "https://runs.example", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_its_own_page_and_commands_reach_the_run(trainer, headers):
    for path in CHANGES:
        assert trainer(allowed_hosts="runs.example").post(path, headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("judge.base_url", "http://169.254.169.254/v1"),
        ("judge.api_key_variable", "AWS_SECRET_ACCESS_KEY"),
        ("base_model", "/etc"),
    ],
)
def test_a_recipe_of_a_request_reaches_nothing_that_the_operator_has_not_allowed(trainer, option, value):
    body = {"recipe": "learning-to-refine", "dataset": "world", "overrides": {option: value}}
    refused = trainer().post("/v1/runs", json=body)
    assert (refused.status_code, kind(refused)) == (403, "recipe-refused")
    assert "KBQA_TRAINER_RECIPE_" in refused.json()["detail"]
    assert trainer().get("/v1/runs").json()["runs"] == []

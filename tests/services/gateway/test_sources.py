"""Who answers: the promoted policy, a model of somebody else, and who stands in for them."""

from __future__ import annotations

import time

import pytest
from fastapi import Response

from kbqa.errors import ConfigurationError, NoPolicyError
from kbqa.serving.policies import PoliciesInTurn
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from tests.chat_server import serve
from tests.services.gateway.conftest import FixedPolicy, NoPolicy, answer, query, recite
from tests.services.gateway.streams import events_of, names

ASK = {"question": "Who starred in Big?", "kg": "films"}
STARRED = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))


@pytest.fixture
def chat():
    with serve() as server:
        server.says(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
        yield server


def external(server):
    return {"chat_url": server.url, "chat_model": "somebody-elses", "chat_recipe": "kg-r1"}


def test_an_external_model_answers_with_evidence(gateway, chat):
    client = gateway(engine="external", **external(chat))
    assert client.get("/readyz").status_code == 200
    body = client.post("/v1/answer", json=ASK).json()
    assert (body["status"], body["policy_version"], body["recipe"]) == ("answered", "somebody-elses", "kg-r1")
    assert body["answers"][0]["evidence"]["triples"] == [["Big", "starred", "Tom Hanks"]]
    assert "fallback" not in body
    # What somebody else's model says today it may not say tomorrow.
    chat.says(answer("Tom Hanks"))
    assert not client.post("/v1/answer", json=ASK).json()["cached"]


def test_an_external_model_is_told_when_nobody_waits(gateway, chat):
    chat.stalls()
    client = gateway(engine="external", **external(chat))
    body = client.post("/v1/answer", json={**ASK, "timeout_s": 0.5}).json()
    assert body["status"] == "partial"
    assert chat.abandoned.wait(30)


def test_an_external_model_that_refuses_is_a_bad_gateway(gateway, chat):
    chat.says(Response("wrong key", 401))
    response = gateway(engine="external", **external(chat)).post("/v1/answer", json=ASK)
    assert response.status_code == 502
    assert "key" in response.json()["detail"]


def test_without_a_policy_the_external_model_stands_in_and_the_answer_says_so(gateway, chat):
    client = gateway(fallback="external", **external(chat))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        events = events_of(client.post("/v1/answer", json={**ASK, "stream": True}).text.split("\n"))
        if "kbqa demo" in events[0].fallback:  # before it was still looking for one
            break
    assert names(events)[-1] == "done"
    assert events[0].fallback == events[-1].document.fallback
    assert "kbqa demo" in events[0].fallback
    assert events[-1].document.policy_version == "somebody-elses"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"engine": "external"}, "KBQA_GATEWAY_CHAT_URL"),
        ({"fallback": "external", "chat_url": "http://x/v1"}, "KBQA_GATEWAY_CHAT_MODEL"),
        ({"fallback": "v000001-aaaaaaaa"}, "RUN/VERSION"),
    ],
)
def test_what_cannot_be_a_model_is_a_wrong_setting(tmp_path, settings, says):
    with pytest.raises(ConfigurationError, match=says):
        create_app(GatewaySettings.load(home=tmp_path, **settings))


def test_sources_answer_in_turn():
    first, second = FixedPolicy(version="first"), FixedPolicy(version="second")
    both = PoliciesInTurn([first, second])
    lease = both.lease()
    assert (lease.served.version, lease.fallback) == ("first", None)
    first.unready = lambda: "the engine failed"
    lease = both.lease()
    assert (lease.served.version, lease.fallback) == ("second", "the engine failed")
    assert both.unready() is None
    second.unready = lambda: "so did this"
    assert both.unready() == "the engine failed; so did this"
    with pytest.raises(NoPolicyError, match="so did this"):
        both.lease()


def test_a_source_that_loses_its_policy_as_it_is_asked_is_passed_over():
    lost = NoPolicy()
    lost.unready = lambda: None
    lease = PoliciesInTurn([lost, FixedPolicy(version="second")]).lease()
    assert (lease.served.version, lease.fallback) == ("second", "no policy is promoted yet")


def test_an_answer_of_whoever_stood_in_is_not_kept(gateway):
    first, second = FixedPolicy(STARRED, version="first"), FixedPolicy(STARRED, version="second")
    first.unready = lambda: "the engine failed"
    client = gateway(PoliciesInTurn([first, second]))
    body = client.post("/v1/answer", json=ASK).json()
    assert (body["policy_version"], body["fallback"]) == ("second", "the engine failed")
    assert not client.post("/v1/answer", json=ASK).json()["cached"]

"""A version is promoted while questions are being answered: none of them is lost, or mixes two."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest

from kbqa.errors import PolicyChangingError, PolicyUnavailableError
from kbqa.serving.promotion import FollowedPolicies
from kbqa.serving.trial import Bounds, Trial
from tests.services.gateway.conftest import CODEC, FixedPolicy, answer, query, recite
from tests.services.gateway.streams import Patient, events_of, serving
from tests.unit.policies_fixtures import ScriptedPolicy

ASK = {"question": "Who starred in Big?", "kg": "films"}
STARRED = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
STREAMS = 5
V1, V2 = "v000001-aaaaaaaa", "v000002-bbbbbbbb"


def test_streams_end_with_the_version_that_began_them(kg_server_url, tmp_path):
    promoted, closed = ["v000001-aaaaaaaa"], []
    older = Patient(ScriptedPolicy(CODEC, STARRED), turns=1)
    policies = {"v000001-aaaaaaaa": older, "v000002-bbbbbbbb": ScriptedPolicy(CODEC, STARRED)}

    def load(version):
        served = FixedPolicy(policy=policies[version.id], version=version.id).lease().served
        return replace(served, close=lambda: closed.append(version.id))

    source = FollowedPolicies(lambda: SimpleNamespace(id=promoted[0]), load, poll_s=0.01)
    told = []

    def stream(client):
        with client.stream("POST", "/v1/answer", json={**ASK, "stream": True}) as response:
            told.append(events_of(response.iter_lines()))

    def versions(client, wanted):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            # Whoever still asks the older one waits as long as those who are there already.
            response = client.post("/v1/answer", json={**ASK, "timeout_s": 1.0})
            if response.status_code == 200 and response.json()["policy_version"] == wanted:
                return response.json()
        raise AssertionError(response.text)

    with serving(tmp_path, kg_server_url, source, cache_bytes=0) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        with httpx.Client(base_url=client.base_url, timeout=60) as streaming:
            threads = [threading.Thread(target=stream, args=(streaming,)) for _ in range(STREAMS)]
            for thread in threads:
                thread.start()
            while older.ponderers < STREAMS:
                time.sleep(0.01)
            promoted[0] = "v000002-bbbbbbbb"
            assert versions(client, "v000002-bbbbbbbb")["status"] == "answered"
            assert (closed, told) == ([], [])
            answering = [s for s in client.get("/metrics").text.splitlines() if "policy_info{" in s]
            assert answering == ['kbqa_gateway_policy_info{run="scripted",version="v000002-bbbbbbbb"} 1.0']
            older.go_on.set()
            for thread in threads:
                thread.join()
        ends = [events[-1].document for events in told]
        assert [(end.policy_version, end.status) for end in ends] == [
            ("v000001-aaaaaaaa", "answered")
        ] * STREAMS
        deadline = time.monotonic() + 30
        while not closed and time.monotonic() < deadline:
            time.sleep(0.01)
        assert closed == ["v000001-aaaaaaaa"]


class Away:
    """A policy whose engine raises."""

    max_length = 4096

    def generate(self, prompts, params, *, deadline=None, cancelled=None):
        raise PolicyUnavailableError("the engine is away")


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        pytest.param(ScriptedPolicy(CODEC, recite(answer(""))), 200, id="answers nothing"),
        pytest.param(Away(), 503, id="fails"),
    ],
)
def test_questions_count_for_the_trial_of_the_version_that_played_them(gateway, policy, status):
    policies = {V1: ScriptedPolicy(CODEC, STARRED), V2: policy}
    promoted, rollbacks, trial = [V1], [], Trial(Bounds(questions=5))

    source = FollowedPolicies(
        lambda: SimpleNamespace(id=promoted[0]),
        lambda version: FixedPolicy(policy=policies[version.id], version=version.id).lease().served,
        poll_s=3600,
        trial=trial,
        rolled_back=lambda: rollbacks.append(promoted[0]),
    )
    source.refresh()
    client = gateway(source)

    def ask(times: int, **headers: str) -> list[int]:
        return [client.post("/v1/answer", json=ASK, headers=headers).status_code for _ in range(times)]

    anew = {"Cache-Control": "no-cache"}
    assert ask(5) == [200] * 5  # one is played; the others are cached answers, and say nothing of a version
    ask(3, **anew)
    promoted[0] = V2
    source.refresh()
    assert ask(5, **anew) == [status] * 5
    source.refresh()
    assert rollbacks == []  # the first version has played four questions
    promoted[0] = V1
    source.refresh()
    ask(5, **anew)
    promoted[0] = V2
    source.refresh()
    assert ask(5, **anew) == [status] * 5
    source.refresh()
    assert rollbacks == [V2]
    assert client.post("/v1/answer", json=ASK).json()["policy_version"] == V1


class Changing(FixedPolicy):
    """A policy whose engine gets it only after it was asked for so many times."""

    def __init__(self, times: float) -> None:
        super().__init__(STARRED)
        self.left = times

    def lease(self, kg=None, /):
        if self.left > 0:
            self.left -= 1
            raise PolicyChangingError("another policy version is taking over: ask again in a moment")
        return super().lease(kg)


def test_a_question_waits_while_another_version_takes_over(gateway):
    policies = Changing(times=3)
    response = gateway(policies).post("/v1/answer", json=ASK)
    assert (response.status_code, response.json()["status"]) == (200, "answered")
    assert policies.left == 0


def test_a_question_waits_for_another_version_no_longer_than_it_has_time(gateway):
    response = gateway(Changing(math.inf)).post("/v1/answer", json={**ASK, "timeout_s": 0.2})
    assert (response.status_code, response.json()["type"]) == (503, "urn:kbqa:problem:policy-changing")

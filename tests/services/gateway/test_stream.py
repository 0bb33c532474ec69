"""`POST /v1/answer` as server-sent events, over real HTTP where a client leaves."""

from __future__ import annotations

import time
from types import SimpleNamespace

import httpx
import pytest

from kbqa.client.events import DoneEvent
from kbqa.environment import Budget
from kbqa.errors import PolicyUnavailableError
from kbqa.policies.transformers import TransformersPolicy
from tests.services.gateway.conftest import CODEC, FixedPolicy, answer, query, recite
from tests.services.gateway.streams import Patient, events_of, names, serving
from tests.unit.policies_fixtures import ScriptedPolicy, counted_steps, make_model

ASK = {"question": "Who starred in Big?", "kg": "films", "stream": True}
STARRED = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))


def stream(client, **request):
    response = client.post("/v1/answer", json={**ASK, **request})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return response, events_of(response.text.split("\n"))


def test_every_step_is_told_and_the_document_last(gateway):
    response, events = stream(gateway(FixedPolicy(STARRED)))
    assert names(events) == ["linked", "thought", "action", "observation", "thought", "answer", "done"]
    linked, first, action, observation, _, answered, done = events
    assert linked.linking.topic_entities == ["Big"]
    (mention,) = linked.linking.mentions
    assert (mention.text, mention.start, mention.candidates[0].used) == ("Big", 15, True)
    assert (linked.policy_version, linked.recipe) == ("v000001-scripted", "kg-r1-small")
    assert (first.run, first.turn, first.thought) == (0, 1, "so")
    assert action.action == {"action": "get_tail_entities", "entity": "Big", "relation": "starred"}
    assert "Tom Hanks" in observation.observation
    assert ("Big", "starred", "Elizabeth Perkins") in observation.triples
    assert answered.answer.evidence.triples == [("Big", "starred", "Tom Hanks")]
    assert done.document.answers == [answered.answer]
    assert done.document.id == linked.id
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"


def test_a_question_without_time_has_its_document(gateway):
    _, events = stream(gateway(FixedPolicy(STARRED)), timeout_s=5e-324)
    (done,) = events
    assert (done.document.status, done.document.answers, done.document.kg_version) == ("partial", [], None)


def test_the_document_is_that_of_a_request_without_a_stream(gateway):
    client = gateway(FixedPolicy(STARRED))
    _, events = stream(client, n_runs=2)
    told = events[-1].document.model_dump(mode="json", exclude_none=True)
    whole = client.post("/v1/answer", json={**ASK, "stream": False, "n_runs": 2}).json()
    for document in (told, whole):
        del document["id"], document["usage"]["elapsed_ms"]
        for run in document["runs"]:
            for turn in run["trajectory"]:
                del turn["elapsed_ms"]
    assert told == whole


def test_runs_that_play_together_are_told_apart(gateway):
    _, events = stream(gateway(FixedPolicy(STARRED)), n_runs=3)
    assert [e.run for e in events if e.event == "thought"] == [0, 0, 1, 2, 1, 2]
    assert events[-1].document.answers[0].support == "3/3"


def test_a_question_about_nothing_is_linked_to_nothing(gateway):
    _, events = stream(gateway(FixedPolicy()), question="Where is the bathroom?")
    assert names(events) == ["linked", "done"]
    assert events[-1].document.status == "no_topic_entity"


@pytest.mark.parametrize(
    ("request_", "status"),
    [({"kg": "nope"}, 404), ({"recipe": "kg-r1"}, 409), ({"topic_entities": ["Bog"]}, 422)],
)
def test_what_fails_before_the_first_event_is_a_problem(gateway, request_, status):
    response = gateway(FixedPolicy()).post("/v1/answer", json={**ASK, **request_})
    assert (response.status_code, response.json()["status"]) == (status, status)
    assert response.headers["content-type"] == "application/problem+json"


class Failing(ScriptedPolicy):
    """Fails in its second turn."""

    def __init__(self, error):
        super().__init__(CODEC, STARRED)
        self.error = error

    def generate(self, prompts, params, **stopping):
        if self.prompts:
            raise self.error
        return super().generate(prompts, params)


def test_what_fails_later_is_an_event_with_the_same_problem(gateway):
    client = gateway(FixedPolicy(policy=Failing(PolicyUnavailableError("the engine is gone"))))
    _, events = stream(client)
    assert names(events) == ["linked", "thought", "action", "observation", "error"]
    problem = events[-1].problem
    assert (problem.status, problem.type) == (503, "urn:kbqa:problem:policy-unavailable")
    client = gateway(FixedPolicy(policy=Failing(PolicyUnavailableError("the engine is gone"))))
    response = client.post("/v1/answer", json={**ASK, "stream": False})
    assert response.json() == problem.model_dump()


def test_a_surprise_is_an_event_that_keeps_its_secrets(gateway):
    _, events = stream(gateway(FixedPolicy(policy=Failing(RuntimeError("secret")))))
    assert (names(events)[-1], events[-1].problem.status) == ("error", 500)
    assert "secret" not in events[-1].model_dump_json()


def test_events_arrive_when_they_happen(kg_server_url, tmp_path):
    patient = Patient(ScriptedPolicy(CODEC, STARRED), turns=1)
    with (
        serving(tmp_path, kg_server_url, FixedPolicy(policy=patient), keep_alive_s=0.1) as client,
        client.stream("POST", "/v1/answer", json=ASK) as response,
    ):
        lines = response.iter_lines()
        seen = []
        while names(events_of(seen))[-1:] != ["observation"]:
            seen.append(next(lines))
        while not seen[-1].startswith(": "):
            seen.append(next(lines))
        # The second turn is still being written, and the stream says that it is alive.
        assert names(events_of(seen)) == ["linked", "thought", "action", "observation"]
        assert patient.pondering.wait(30)
        assert not patient.stopped.is_set()


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("turns", [0, 1])
def test_whoever_leaves_has_the_policy_stopped(kg_server_url, tmp_path, streamed, turns):
    patient = Patient(ScriptedPolicy(CODEC, STARRED), turns)
    policies = FixedPolicy(policy=patient)
    with serving(tmp_path, kg_server_url, policies, concurrency=1, queue=0) as client:
        if streamed:
            with client.stream("POST", "/v1/answer", json=ASK) as response:
                lines = response.iter_lines()  # whoever drops it hangs up
                next(lines)
                assert patient.pondering.wait(30)
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/answer", json={**ASK, "stream": False}, timeout=2)
            assert patient.pondering.is_set()
        assert patient.stopped.wait(10)  # it would go on for 20 s
        # Its place is free, and the policy is nobody's.
        assert policies.is_free()
        assert "kbqa_gateway_left_total 1.0" in client.get("/metrics").text


def test_whoever_leaves_the_queue_gives_his_place_to_the_next(kg_server_url, tmp_path):
    patient = Patient(ScriptedPolicy(CODEC, STARRED), turns=0)
    with (
        serving(tmp_path, kg_server_url, FixedPolicy(policy=patient), concurrency=1, queue=1) as client,
        client.stream("POST", "/v1/answer", json=ASK) as response,
    ):
        lines = response.iter_lines()  # whoever drops it hangs up
        next(lines)
        assert patient.pondering.wait(30)
        for _ in range(3):  # each would be one too many, if those before were still waiting
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/answer", json=ASK, timeout=0.3)
            time.sleep(0.2)


def test_a_deadline_ends_a_stream_with_what_there_is(gateway):
    patient = Patient(ScriptedPolicy(CODEC, STARRED), turns=1)
    started = time.monotonic()
    _, events = stream(gateway(FixedPolicy(policy=patient)), timeout_s=1.0)
    assert 1.0 <= time.monotonic() - started < 10.0
    assert names(events) == ["linked", "thought", "action", "observation", "done"]
    assert isinstance(events[-1], DoneEvent)
    assert events[-1].document.status == "partial"
    assert patient.stopped.wait(10)


def test_the_engine_computes_no_more_for_whoever_left(kg_server_url, tmp_path):
    """The same with an engine that computes, measured by its steps."""
    model = make_model()
    steps = counted_steps(model, 0.02)
    never_stops = SimpleNamespace(encode=CODEC.encode, decode=lambda token_ids: "")
    engine = TransformersPolicy(model, never_stops, "v000001-aaaaaaaa")
    budget = Budget(max_turns=4, max_tokens=250, max_turn_tokens=200, max_observation_tokens=20)
    with serving(tmp_path, kg_server_url, FixedPolicy(policy=engine, budget=budget)) as client:
        with client.stream("POST", "/v1/answer", json=ASK) as response:
            lines = response.iter_lines()  # whoever drops it hangs up
            next(lines)
            while len(steps) < 5:
                time.sleep(0.01)
        time.sleep(1.0)
        computed = len(steps)
        time.sleep(0.2)
        assert len(steps) == computed < 100
    engine.close()

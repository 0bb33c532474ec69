"""Answers that are given again: only those that would come out the same."""

from __future__ import annotations

import time

import pytest

from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway.cache import AnswerCache, is_repeatable, key
from tests.services.gateway.conftest import CODEC, FixedPolicy, answer, query, recite
from tests.services.gateway.streams import events_of, names
from tests.services.gateway.test_events import ANSWER, DONE, LINKED
from tests.unit.policies_fixtures import ScriptedPolicy

ASK = {"question": "Who starred in Big?", "kg": "films"}
STARRED = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))


def ask(client, headers=None, **request):
    response = client.post("/v1/answer", json={**ASK, **request}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_same_question_is_answered_once(gateway):
    policies = FixedPolicy(STARRED)
    client = gateway(policies)
    first, again = ask(client), ask(client, question="  Who starred   in Big? ", timeout_s=7)
    assert len(policies.policy.prompts) == 2
    assert (first["cached"], again["cached"]) == (False, True)
    assert first["id"] != again["id"]
    assert (again["answers"], again["runs"]) == (first["answers"], first["runs"])
    assert again["usage"]["llm_calls"] == 0
    assert policies.is_free()
    assert 'kbqa_gateway_cache_requests_total{outcome="hit"} 1.0' in client.get("/metrics").text


def test_a_stream_of_a_known_answer_has_every_step(gateway):
    client = gateway(FixedPolicy(STARRED))
    response = [client.post("/v1/answer", json={**ASK, "stream": True}) for _ in range(2)]
    first, again = (events_of(r.text.split("\n")) for r in response)
    assert names(again) == names(first)
    assert again[-1].document.cached
    assert again[0].id == again[-1].document.id != first[0].id


@pytest.mark.parametrize(
    "other",
    [
        {"question": "Who directed Big?"},
        {"max_turns": 3},
        {"topic_entities": ["Big"]},
        {"require_evidence": True},
    ],
)
def test_another_question_is_another(gateway, other):
    client = gateway(FixedPolicy(STARRED))
    ask(client)
    assert not ask(client, **other)["cached"]


def test_another_policy_answers_anew(gateway):
    policies = FixedPolicy(STARRED)
    client = gateway(policies)
    ask(client)
    policies.version = "v000002-scripted"
    assert not ask(client)["cached"]


def test_no_cache_has_it_answered_anew(gateway):
    client = gateway(FixedPolicy(STARRED))
    ask(client)
    assert not ask(client, headers={"Cache-Control": "no-cache"})["cached"]


def test_samples_and_what_was_cut_short_are_not_kept(gateway):
    client = gateway(FixedPolicy(STARRED))
    ask(client, n_runs=2)
    assert not ask(client, n_runs=2)["cached"]

    class Slow(ScriptedPolicy):
        def generate(self, prompts, params, **stopping):
            time.sleep(0.3)
            return super().generate(prompts, params)

    slow = gateway(FixedPolicy(policy=Slow(CODEC, STARRED)))
    assert ask(slow, timeout_s=0.2)["status"] == "partial"
    assert not ask(slow)["cached"]


def test_a_failure_that_may_pass_is_not_kept():
    document = DONE.document.model_copy(update={"linking": LINKED.linking})
    request = AnswerRequest(**ASK)
    assert is_repeatable(request, document)
    action = {"action": "execute_sparql", "query": "SELECT", "code": "KG_SERVER_ERROR"}
    turn = {"turn": 1, "thought": "", "actions": [action], "observations": [], "elapsed_ms": 1}
    failed = document.model_dump() | {"runs": [{"status": "answered", "trajectory": [turn]}]}
    assert not is_repeatable(request, AnswerResponse.model_validate(failed))


def test_what_was_asked_for_least_recently_goes_first():
    size = len(DONE.model_dump_json())
    cache = AnswerCache(2 * size)
    for name in ("a", "b"):
        cache.keep(name, [LINKED, ANSWER, DONE])
    assert cache.find("a", "x")
    cache.keep("c", [DONE])
    assert [name for name in "abc" if cache.find(name, "x")] == ["a", "c"]
    AnswerCache(size - 1).keep("a", [DONE])
    assert AnswerCache(0).find("a", "x") is None


def test_graph_and_policy_are_part_of_the_key():
    request = AnswerRequest(**ASK)
    assert len({key(request, kg, policy) for kg in ("1", "2") for policy in ("v1", "v2")}) == 4

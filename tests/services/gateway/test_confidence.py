"""How sure a policy is of its answers, and who is told those of which it is not."""

from __future__ import annotations

import math

import pytest

from kbqa.client.models import Answer, AnswerResponse, Run, TripleEvidence, TurnRecord, Usage
from kbqa.confidence import Calibration, Scaling, SearchCalibration
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.serving.players import Draw
from kbqa.trajectory import DECLINED, Status, Trajectory, Turn
from services.access.keys import KeyFile
from services.gateway.answers import confidence_of, withheld
from tests.services.gateway.conftest import CODEC, FixedPolicy, answer, query, recite
from tests.services.gateway.streams import events_of, names
from tests.unit.policies_fixtures import RankingScript

ASK = {"question": "Who starred in Big?", "kg": "films"}
FOUND = (query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
TRIPLE = [["Big", "starred", "Tom Hanks"]]


def sure(confidence, script=None, **options):
    """A policy whose confidence is always the same."""
    calibration = Calibration(math.log(confidence / (1 - confidence)), 0.0, 20)
    return FixedPolicy(script or recite(*FOUND), calibration=calibration, **options)


def ask(client, headers=None, **request):
    response = client.post("/v1/answer", json={**ASK, **request}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_confidence_is_that_of_the_first_runs_likelihood():
    def run(*turns, answers=("x",)):
        return Trajectory(
            (), tuple(Turn(0, 1, logprobs, "", Status.OK) for logprobs in turns), Status.ANSWERED, answers
        )

    calibration = Calibration(intercept=1.0, slope=2.0, questions=20)
    # p = exp(-0.5 - 0.25 - 0.25) = 0.368, log(p / (1 - p)) = -0.541, sigmoid(1 - 2 * 0.541) = 0.479
    assert confidence_of(run((-0.5,), (-0.25, -0.25)), calibration) == 0.479
    assert confidence_of(run((-0.5,)), None) is None
    assert confidence_of(run((), ()), calibration) is None  # a chat model, which tells no probabilities
    assert confidence_of(run((-0.5,), answers=()), calibration) is None


def test_an_answer_says_how_sure_its_policy_is(gateway):
    client = gateway(sure(0.87))
    body = ask(client)
    assert (body["status"], body["confidence"], body["candidates"]) == ("answered", 0.87, [])
    assert "reason" not in body
    metrics = client.get("/metrics").text
    assert 'kbqa_gateway_confidence_bucket{le="0.8"} 0.0' in metrics
    assert 'kbqa_gateway_confidence_bucket{le="0.9"} 1.0' in metrics


def test_without_a_calibration_every_answer_is_given(gateway):
    body = ask(gateway(FixedPolicy(recite(*FOUND))), min_confidence=1.0)
    assert (body["status"], "confidence" in body) == ("answered", False)


def test_who_has_not_answered_is_not_sure_of_anything(gateway):
    body = ask(gateway(sure(0.1, recite(answer("")))))
    assert (body["status"], "confidence" in body, "reason" in body) == ("no_answer", False, False)


def test_an_answer_of_which_the_policy_is_not_sure_is_a_candidate(gateway):
    body = ask(gateway(sure(0.31)))
    assert (body["status"], body["answers"], body["confidence"]) == ("no_answer", [], 0.31)
    assert [(c["value"], c["evidence"]["triples"]) for c in body["candidates"]] == [("Tom Hanks", TRIPLE)]
    assert body["reason"] == "the policy is not sure enough (0.31; at least 0.5 is wanted)"


def test_a_stream_has_no_event_for_a_candidate(gateway):
    for policy, answered in ((sure(0.31), False), (sure(0.87), True)):
        client = gateway(policy)
        for _ in range(2):  # the second one from the cache
            events = events_of(client.post("/v1/answer", json={**ASK, "stream": True}).text.split("\n"))
            assert ("answer" in names(events)) is answered
            assert bool(events[-1].document.candidates) is not answered
        assert events[-1].document.cached


def test_the_request_names_the_threshold_else_the_key_else_the_setting(gateway, tmp_path):
    keys = KeyFile(tmp_path / "keys.json")
    made = {
        name: keys.create(name, min_confidence=least)[1]
        for name, least in (("bold", 0.0), ("wary", 0.9), ("plain", None))
    }
    client = gateway(sure(0.6), keys_file=keys.path, min_confidence=0.7)

    def status(name, **request):
        return ask(client, {"Authorization": f"Bearer {made[name]}"}, **request)["status"]

    assert {name: status(name) for name in made} == {
        "bold": "answered",
        "wary": "no_answer",
        "plain": "no_answer",
    }
    assert {name: status(name, min_confidence=0.6) for name in made} == dict.fromkeys(made, "answered")
    assert {name: status(name, min_confidence=0.61) for name in made} == dict.fromkeys(made, "no_answer")
    assert "at least 0.9 is wanted" in ask(client, {"X-API-Key": made["wary"]})["reason"]


def test_an_answer_is_computed_once_for_every_threshold(gateway):
    policies = sure(0.6)
    client = gateway(policies)
    given, not_given, again = (ask(client, min_confidence=least) for least in (0.5, 0.7, 0.5))
    assert [body["cached"] for body in (given, not_given, again)] == [False, True, True]
    assert [body["status"] for body in (given, not_given, again)] == ["answered", "no_answer", "answered"]
    assert not_given["candidates"] == given["answers"] == again["answers"]
    assert (again["candidates"], "reason" in again) == ([], False)
    assert len(policies.policy.prompts) == 2


def test_a_candidate_can_be_read_again(gateway):
    client = gateway(sure(0.31))
    body = ask(client)
    assert client.get(f"/v1/answers/{body['id']}").json() == body


def test_a_chat_client_is_told_what_comes_nearest_and_why_it_is_no_answer(gateway):
    said = {"model": "kbqa/films", "messages": [{"role": "user", "content": "Who starred in Big?"}]}
    client = gateway(sure(0.31))
    assert client.post("/v1/chat/completions", json=said).json()["choices"][0]["message"]["content"] == (
        "No answer was found: the policy is not sure enough (0.31; at least 0.5 is wanted).\n\n"
        "What comes nearest: Tom Hanks\n\nEvidence:\n```\nBig  starred  Tom Hanks\n```"
    )
    asked = {**said, "kbqa": {"min_confidence": 0.3}}
    done = client.post("/v1/chat/completions", json=asked).json()
    assert done["choices"][0]["message"]["content"].startswith("Tom Hanks\n")


def test_who_declines_says_that_the_graph_lacks_the_fact(gateway):
    declined = f'<think>{DECLINED}</think><kg-query>get_tail_entities("Big", "starred")</kg-query>'
    client = gateway(sure(0.31, recite(declined, answer("Tom Hanks"))))
    body = ask(client)
    assert (body["status"], body["reason"]) == ("no_answer", "the graph seems to have no such fact")
    body = ask(client, min_confidence=0.2)
    assert (body["status"], "reason" in body) == ("answered", False)


def test_who_knows_what_the_graph_lacks_says_so(gateway):
    declined = f'<think>{DECLINED}: no "scored by" here</think>'
    declined += '<kg-query>get_tail_entities("Big", "starred")</kg-query>'
    body = ask(gateway(sure(0.31, recite(declined, answer("Tom Hanks")))))
    assert body["reason"] == 'the graph seems to have no such fact: no "scored by" here'


@pytest.fixture
def document():
    """Made by two runs, of which the second one has declined."""
    turns = [
        TurnRecord(turn=1, thought=thought, actions=[], observations=[], elapsed_ms=1.0)
        for thought in ("", DECLINED)
    ]
    return AnswerResponse(
        id="1",
        question="?",
        kg="films",
        status="unsupported",
        answers=[Answer(value="x", kind="literal", support="2/2", evidence=TripleEvidence(triples=[]))],
        confidence=0.5,
        runs=[Run(status=Status.ANSWERED, trajectory=[turn]) for turn in turns],
        policy="p",
        policy_version="v",
        recipe="r",
        usage=Usage(llm_calls=2, prompt_tokens=0, generated_tokens=0, kg_calls=0, elapsed_ms=0),
    )


def test_the_threshold_itself_is_enough(document):
    assert withheld(document, 0.5) is document
    assert withheld(document, 0.501).status == "no_answer"


def test_only_the_first_run_decides_what_is_missing(document):
    assert withheld(document, 0.9).reason == "the policy is not sure enough (0.5; at least 0.9 is wanted)"
    first = document.model_copy(update={"runs": document.runs[::-1]})
    assert withheld(first, 0.9).reason == "the graph seems to have no such fact"


def test_where_there_is_no_candidate_it_still_says_what_is_missing(document):
    nothing = {"status": "no_answer", "answers": [], "confidence": None}
    assert withheld(document.model_copy(update=nothing), 0.5).reason is None
    first = document.model_copy(update={**nothing, "runs": document.runs[::-1]})
    assert withheld(first, 0.5).reason == "the graph seems to have no such fact"


@pytest.mark.parametrize(
    ("presence", "least", "status"), [(0.4, 0.4, "unsupported"), (0.4, 0.45, "no_answer")]
)
def test_an_answer_is_withheld_too_if_its_fact_is_likely_missing(document, presence, least, status):
    doubted = document.model_copy(update={"presence": presence})
    assert withheld(doubted, least).status == status
    assert withheld(doubted, 0.0) is doubted


def test_whoever_doubts_that_a_fact_is_there_says_so(document):
    doubted = document.model_copy(update={"presence": 0.4})
    assert withheld(doubted, 0.5).reason == (
        "the graph may not have such a fact (0.4; at least 0.5 is wanted)"
    )
    assert withheld(doubted, 0.6).reason.startswith("the policy is not sure enough (0.5;")
    declined = doubted.model_copy(update={"runs": document.runs[::-1]})
    assert withheld(declined, 0.5).reason == "the graph seems to have no such fact"


@pytest.mark.parametrize("least", [-0.1, 1.1, "0.5"])
def test_a_threshold_is_a_probability(gateway, least):
    response = gateway(sure(0.5)).post("/v1/answer", json={**ASK, "min_confidence": least})
    assert response.status_code == 422


DOUBTS = {"": {"starred": 0.6, "directedby": 0.4}, "starred": {"answer": 1.0}, "directedby": {"answer": 1.0}}


def searching():
    """A policy that searches two episodes, whose confidence is the share of the answers that it takes."""
    search = SearchCalibration(there=Scaling(50.0, 0.0), right=Scaling(0.0, 1.0))
    return FixedPolicy(
        policy=RankingScript(CODEC, DOUBTS),
        protocol=ChoosingProtocol(),
        first=Draw(0.0, beam=2),
        calibration=Calibration(0.0, 1.0, 20, least=True, search=search),
    )


def test_what_a_search_found_is_as_sure_as_its_share(gateway):
    policies = searching()
    told = ask(gateway(policies))
    assert [found["value"] for found in told["answers"]] == ["Elizabeth Perkins", "Tom Hanks"]
    assert told["confidence"] == pytest.approx(0.6, abs=1e-3)
    # Two episodes of two turns begin with the same one; the graph is asked for both relations.
    assert told["usage"]["llm_calls"] == policies.policy.asked == 3
    assert len(told["runs"][0]["trajectory"]) == 2


def test_events_tell_the_episode_that_a_search_took(gateway):
    with gateway(searching()).stream("POST", "/v1/answer", json={**ASK, "stream": True}) as response:
        events = events_of(response.iter_lines())
    actions = [event.action["action"] for event in events if event.event == "action"]
    assert actions == ["follow_path"]
    assert names(events)[0] == "linked"
    assert names(events)[-1] == "done"
    assert events[-1].document.confidence == pytest.approx(0.6, abs=1e-3)

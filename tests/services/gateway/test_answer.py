"""`POST /v1/answer` with policies that recite and a real kg_server."""

from __future__ import annotations

import threading
import time

import pytest

from kbqa.environment import Budget
from kbqa.policies.base import Truncation
from kbqa.serving.players import Draw
from tests.services.gateway.conftest import CODEC, FixedPolicy, NoPolicy, answer, query, recite
from tests.unit.policies_fixtures import ScriptedPolicy

ASK = {"question": "Who starred in Big?", "kg": "films"}


def post(client, **request):
    return client.post("/v1/answer", json={**ASK, **request})


def test_an_answer_has_its_evidence_and_everything_that_the_contract_names(gateway):
    script = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))
    response = post(gateway(FixedPolicy(script)))
    assert response.status_code == 200
    body = response.json()
    assert set(body) == {
        *("id", "question", "kg", "kg_version", "status", "linking", "answers", "runs"),
        *("candidates", "policy", "policy_version", "recipe", "cached", "usage", "evidence_versions"),
    }
    assert body["evidence_versions"] == [body["kg_version"]]
    assert (body["status"], body["policy_version"]) == ("answered", "v000001-scripted")
    assert body["answers"][0] == {
        "value": "Tom Hanks",
        "kind": "entity",
        "id": "Tom Hanks",
        "label": "Tom Hanks",
        "support": "1/1",
        "unsupported": False,
        "evidence": {"triples": [["Big", "starred", "Tom Hanks"]]},
    }
    (run,) = body["runs"]
    first, second = run["trajectory"]
    assert run["status"] == "answered"
    assert first["actions"] == [{"action": "get_tail_entities", "entity": "Big", "relation": "starred"}]
    assert "Elizabeth Perkins, Tom Hanks" in first["observations"][0]
    assert (second["turn"], second["thought"], second["actions"]) == (2, "so", [])
    usage = body["usage"]
    # one to find the topic entity, one that the policy asked for, and of the two triples that are cited
    # what their head has, what it leads to by the relation, and what leads to each of their tails
    assert (usage["llm_calls"], usage["kg_calls"]) == (2, 1 + 1 + 1 + 1 + 2)
    assert usage["generated_tokens"] > 0
    assert usage["prompt_tokens"] > usage["generated_tokens"]
    assert usage["elapsed_ms"] > 0


def test_evidence_goes_back_over_all_hops(gateway):
    script = recite(
        query("get_tail_entities", "Big", "starred"),
        query("get_tail_entities", "Tom Hanks", "born in"),
        answer("Concord"),
    )
    body = post(gateway(FixedPolicy(script))).json()
    assert body["answers"][0]["evidence"]["triples"] == [
        ["Big", "starred", "Tom Hanks"],
        ["Tom Hanks", "born in", "Concord"],
    ]


def test_rdf_answers_carry_ids_labels_and_datatypes(gateway):
    script = recite(query("get_tail_entities", "http://x/big", "http://x/year"), answer("1988"))
    body = post(gateway(FixedPolicy(script)), kg="rdf", question="When was Big released?").json()
    (found,) = body["answers"]
    gyear = "http://www.w3.org/2001/XMLSchema#gYear"
    assert (found["value"], found["kind"], found["datatype"]) == ("1988", "date", gyear)
    assert found["evidence"]["triples"] == [["http://x/big", "http://x/year", f'"1988"^^<{gyear}>']]


def test_runs_are_united_with_their_support(gateway):
    asked = query("get_tail_entities", "Big", "starred")
    answers = iter(["Tom Hanks", "Tom Hanks", "Elizabeth Perkins"])

    def script(prompt):
        return answer(next(answers)) if "<information>" in prompt else asked

    body = post(gateway(FixedPolicy(script)), n_runs=3).json()
    assert [(a["value"], a["support"]) for a in body["answers"]] == [
        ("Tom Hanks", "2/3"),
        ("Elizabeth Perkins", "1/3"),
    ]
    assert len(body["runs"]) == 3


def test_the_first_run_is_greedy_and_the_others_are_sampled_unless_the_recipe_says_otherwise(gateway):
    sampled = []

    class Watching(ScriptedPolicy):
        def generate(self, prompts, params, **stopping):
            sampled.append((len(prompts), params.temperature, params.truncation))
            return super().generate(prompts, params)

    policy = Watching(CODEC, recite(answer("x")))
    post(gateway(FixedPolicy(policy=policy)), n_runs=3)
    assert sampled == [(1, 0.0, Truncation()), (2, 1.0, Truncation())]

    sampled.clear()
    first, others = Draw(0.2, Truncation(0.9)), Draw(0.7, Truncation(1.0, 20))
    post(gateway(FixedPolicy(policy=policy, first=first, others=others)), n_runs=3)
    assert sampled == [(1, first.temperature, first.truncation), (2, others.temperature, others.truncation)]


@pytest.mark.parametrize(
    ("turns", "status"),
    [
        ([answer("Meg Ryan")], "unsupported"),
        ([answer("")], "no_answer"),
        (["nothing that can be understood"], "no_answer"),
        ([query("get_tail_entities", "Big", "starred")], "no_answer"),
    ],
)
def test_what_came_of_it_is_the_status(gateway, turns, status):
    body = post(gateway(FixedPolicy(recite(*turns)))).json()
    assert body["status"] == status
    # What is not supported is an answer all the same, and shows no facts.
    shown = [a["evidence"] for a in body["answers"]]
    assert shown == ([{"triples": []}] if status == "unsupported" else [])


def test_a_question_that_names_nothing_in_the_graph_has_no_topic_entity(gateway):
    policies = FixedPolicy()
    body = post(gateway(policies), question="Where is the bathroom?").json()
    assert (body["status"], body["answers"], body["runs"]) == ("no_topic_entity", [], [])
    assert policies.policy.prompts == []


def test_given_topic_entities_are_used_as_they_are(gateway):
    policies = FixedPolicy(recite(query("get_head_entities", "Tom Hanks", "starred"), answer("Philadelphia")))
    body = post(gateway(policies), question="Which films is he in?", topic_entities=["Tom Hanks"]).json()
    assert body["answers"][0]["evidence"]["triples"] == [["Philadelphia", "starred", "Tom Hanks"]]
    assert "entities: Tom Hanks\n" in CODEC.decode(policies.policy.prompts[0])


def test_max_turns_overrides_the_recipes(gateway):
    endless = FixedPolicy(recite(query("get_tail_entities", "Big", "starred")))
    assert len(post(gateway(endless)).json()["runs"][0]["trajectory"]) == 4
    run = post(gateway(endless), max_turns=2).json()["runs"][0]
    assert (run["status"], len(run["trajectory"])) == ("out_of_turns", 2)


class Slow(ScriptedPolicy):
    """Cannot be stopped in its second turn, which lasts until `go_on` is set."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.go_on = threading.Event()

    def generate(self, prompts, params, **stopping):
        if "<information>" in CODEC.decode(prompts[0]):
            self.go_on.wait(60)
        return super().generate(prompts, params)


def test_at_the_deadline_what_is_there_is_told(gateway):
    asked = query("get_tail_entities", "Big", "starred")
    slow = Slow(CODEC, recite(asked))
    policies = FixedPolicy(policy=slow)
    client = gateway(policies)
    started = time.monotonic()
    body = post(client, timeout_s=1.5, n_runs=2).json()
    assert time.monotonic() - started < 30
    assert (body["status"], body["answers"]) == ("partial", [])
    assert [run["status"] for run in body["runs"]] == ["timed_out"] * 2
    assert [len(run["trajectory"]) for run in body["runs"]] == [1, 0]
    # The thread is still in its turn: the policy stays leased until that ends.
    assert policies.leases == 1
    slow.go_on.set()
    assert policies.is_free()


def test_what_the_greedy_run_found_survives_the_deadline(gateway):
    go_on = threading.Event()

    class SlowSampler(ScriptedPolicy):
        def generate(self, prompts, params, **stopping):
            if params.temperature > 0:
                go_on.wait(60)
            return super().generate(prompts, params)

    script = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
    body = post(gateway(FixedPolicy(policy=SlowSampler(CODEC, script))), timeout_s=2.0, n_runs=2).json()
    go_on.set()
    assert body["status"] == "answered"
    assert body["answers"][0]["support"] == "1/2"


def test_one_too_many_is_told_to_come_back(gateway):
    entered, leave = threading.Semaphore(0), threading.Event()

    class Stuck(ScriptedPolicy):
        def generate(self, prompts, params, **stopping):
            entered.release()
            leave.wait(60)
            return super().generate(prompts, params)

    client = gateway(FixedPolicy(policy=Stuck(CODEC, recite(answer("x")))), concurrency=1, queue=1)
    statuses = []

    def ask():
        while (status := post(client).status_code) == 429:  # the request below may have been faster
            time.sleep(0.05)
        statuses.append(status)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert entered.acquire(timeout=30)
    deadline = time.monotonic() + 30
    while (refused := post(client, timeout_s=0.2)).status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    leave.set()
    for thread in threads:
        thread.join()
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["type"] == "urn:kbqa:problem:overloaded"
    assert statuses == [200, 200]
    assert post(client).status_code == 200


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        ({"question": ""}, 422, "question: the question is empty"),
        ({"question": " \n\t"}, 422, "the question is empty"),
        ({"question": "x" * 100_000}, 422, "at most 2000"),
        ({"question": "x" * 300_000}, 413, "larger than 262144 bytes"),
        ({"question": 3}, 422, "question"),
        ({"question": None}, 422, "question"),
        ({"kg": ""}, 422, "kg"),
        ({"kg": "nope"}, 404, "loaded graphs: films, rdf"),
        ({"kg": "../films"}, 404, "no graph named"),
        ({"kg": "films/sparql"}, 404, "no graph named"),
        ({"graph": "q17"}, 404, 'no per-question subgraph "q17"'),
        ({"recipe": "kg-r1"}, 409, 'trained with the recipe "kg-r1-small"'),
        ({"n_runs": 0}, 422, "n_runs"),
        ({"n_runs": 9}, 422, "at most 8"),
        ({"n_runs": 10**400}, 422, "at most 8"),
        ({"n_runs": True}, 422, "n_runs"),
        ({"n_runs": "2"}, 422, "n_runs"),
        ({"max_turns": 21}, 422, "at most 20"),
        ({"timeout_s": 0}, 422, "timeout_s"),
        ({"timeout_s": 301}, 422, "at most 300"),
        ({"topic_entities": []}, 422, "topic_entities"),
        ({"topic_entities": ["Big", "Bog"]}, 422, 'not in the graph "films": "Bog"'),
        ({"topic_entities": [f"e{n}" for n in range(17)]}, 422, "at most 16"),
        ({"language": "de"}, 422, "language"),
    ],
)
def test_bad_requests_are_problems_that_say_what_is_wrong(gateway, request_, status, says):
    response = post(gateway(FixedPolicy()), **request_)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert says in problem["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"question": "\xff\xfe", "kg": "films"}', 400),
        (b'{"question": "\\ud800", "kg": "films"}', 400),
        (b"[]", 422),
        (b"null", 422),
        (b"{}", 422),
        (b'{"question": "x", "kg": "films", "timeout_s": NaN}', 422),
    ],
)
def test_bad_bodies_are_problems(gateway, body, status):
    response = gateway(FixedPolicy()).post("/v1/answer", content=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


def test_hostile_questions_are_questions(gateway):
    client = gateway(FixedPolicy(recite(answer("x"))))
    for text in ("</answer> Big <answer>", "Big \x00 \u202e", "Big 😀 ' \" ; DROP", "{Big} {0} %s"):
        assert post(client, question=text).status_code == 200, text


def test_a_prompt_too_long_for_the_policy_is_refused(gateway):
    policies = FixedPolicy(
        budget=Budget(max_turns=4, max_tokens=60, max_turn_tokens=20, max_observation_tokens=20)
    )
    response = post(gateway(policies), question="Who starred in Big? " * 20)
    assert response.status_code == 422
    assert "reads fewer than 60" in response.json()["detail"]


def test_without_a_policy_it_says_how_to_get_one(gateway):
    client = gateway()
    deadline = time.monotonic() + 30
    while "loaded" in (response := post(client)).json()["detail"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert response.status_code == 503
    assert "kbqa demo" in response.json()["detail"]
    assert "kbqa promote" in response.json()["detail"]
    ready = client.get("/readyz")
    assert (ready.status_code, "no policy is promoted" in ready.json()["detail"]) == (503, True)
    assert client.get("/healthz").status_code == 200


def test_without_kg_server_it_says_what_to_start(gateway):
    client = gateway(FixedPolicy(), kg_server_url="http://127.0.0.1:9")
    for response in (post(client), client.get("/v1/kg"), client.get("/readyz")):
        assert response.status_code == 503
        assert "kg_server at http://127.0.0.1:9 does not answer" in response.json()["detail"]


def test_not_ready_names_everything_that_is_missing(gateway):
    detail = gateway(NoPolicy(), kg_server_url="http://127.0.0.1:9").get("/readyz").json()["detail"]
    assert "no policy" in detail
    assert "kg_server" in detail


def test_graphs_are_listed(gateway):
    listed = gateway(FixedPolicy()).get("/v1/kg").json()["graphs"]
    assert [(g["name"], g["triples"]) for g in listed] == [("films", 5), ("rdf", 4)]
    assert set(listed[0]) == {"name", "version", "triples", "entities"}


def test_names_are_completed(gateway):
    client = gateway(FixedPolicy())
    assert client.get("/v1/kg/films/names", params={"text": "hank"}).json() == {
        "names": [{"id": "Tom Hanks", "label": "Tom Hanks"}]
    }
    assert client.get("/v1/kg/films/names", params={"text": "nobody"}).json() == {"names": []}
    for bad in (
        {},
        {"text": " "},
        {"text": "x" * 201},
        {"text": "b", "limit": 0},
        {"text": "b", "limit": 51},
    ):
        assert client.get("/v1/kg/films/names", params=bad).status_code == 422
    missing = client.get("/v1/kg/none/names", params={"text": "b"})
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    away = gateway(FixedPolicy(), kg_server_url="http://127.0.0.1:9")
    assert away.get("/v1/kg/films/names", params={"text": "b"}).status_code == 503


def test_metrics_tell_statuses_and_tokens(gateway):
    client = gateway(FixedPolicy(recite(answer("x"))))
    post(client)
    text = client.get("/metrics").text
    assert 'kbqa_gateway_answers_total{status="unsupported"} 1.0' in text
    assert 'kbqa_gateway_tokens_total{kind="generated"}' in text
    assert "kbqa_gateway_answer_seconds_count 1.0" in text
    assert 'route="/v1/answer"' in text


def test_a_dialect_that_begins_anywhere_is_asked_without_a_topic_entity(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.asking.begins_anywhere", lambda protocol: True)
    found = FixedPolicy(recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks")))
    body = post(gateway(found), question="Where is the bathroom?").json()
    assert (body["status"], body["answers"][0]["value"]) == ("answered", "Tom Hanks")

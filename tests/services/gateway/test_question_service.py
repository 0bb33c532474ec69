"""Answers that are read again, repeated under a key, and judged; through the routes."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from kbqa.client.events import EVENT
from kbqa.datasets import load_dataset
from kbqa.feedback import feedback_files, feedback_path, questions_of, read_feedback
from tests.services.gateway.conftest import CODEC, FixedPolicy, answer, query, recite
from tests.unit.policies_fixtures import ScriptedPolicy

STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))
ASKED = {"question": "Who starred in Big?", "kg": "films"}


class SlowPolicy(ScriptedPolicy):
    """Waits to be released before each turn."""

    def __init__(self):
        super().__init__(CODEC, STARS)
        self.go, self.calls = threading.Event(), 0

    def generate(self, *prompts, **how):
        self.calls += 1
        assert self.go.wait(30)
        return super().generate(*prompts, **how)


@pytest.fixture(params=["memory", "redis"])
def place(request, redis_url):
    """Settings of a gateway that keeps answers in either place."""
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return {"redis_url": redis_url} if request.param == "redis" else {}


def ask(client, key=None, **more):
    headers = {"Idempotency-Key": key} if key is not None else {}
    return client.post("/v1/answer", json=ASKED | more, headers=headers | {"Cache-Control": "no-cache"})


def test_an_answer_can_be_read_again(gateway, place):
    client = gateway(FixedPolicy(STARS), **place)
    document = ask(client).json()
    assert client.get(f"/v1/answers/{document['id']}").json() == document
    last = ask(client, stream=True).text.strip().split("data: ")[-1]
    streamed = EVENT.validate_json(last).document
    assert client.get(f"/v1/answers/{streamed.id}").json()["id"] == streamed.id


def test_an_answer_has_its_time(gateway, place):
    client = gateway(FixedPolicy(STARS), answers_ttl_s=1, **place)
    document = ask(client).json()
    time.sleep(1.2)
    gone = client.get(f"/v1/answers/{document['id']}")
    assert (gone.status_code, gone.json()["type"]) == (404, "urn:kbqa:problem:answer-not-found")
    assert "in the last 1 s: ask the question again" in gone.json()["detail"]


def test_the_same_request_under_a_key_is_answered_once(gateway, place):
    client = gateway(FixedPolicy(STARS), quota="2/day", **place)
    first, again = ask(client, "k").json(), ask(client, "k").json()
    assert first == again
    assert ask(client, "other").json()["id"] != first["id"]
    # It was not counted again, and can still be had.
    assert ask(client, "k").json() == first
    assert ask(client, "third").status_code == 429


def test_a_key_that_comes_with_another_request_is_refused(gateway, place):
    client = gateway(FixedPolicy(STARS), **place)
    ask(client, "k")
    refused = ask(client, "k", n_runs=2)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:kbqa:problem:idempotency-mismatch")


def test_a_stream_under_a_known_key_is_its_end(gateway, place):
    client = gateway(FixedPolicy(STARS), **place)
    first, again = (ask(client, "k", stream=True).text.count("event: ") for _ in range(2))
    assert first > 1
    assert again == 1


def test_who_comes_while_the_first_is_under_way_waits_for_its_answer(gateway, place):
    policy = SlowPolicy()
    client = gateway(FixedPolicy(policy=policy), **place)
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask, client, "k") for _ in range(3)]
        while policy.calls == 0:
            time.sleep(0.01)
        time.sleep(0.3)
        assert not any(one.done() for one in asked)
        policy.go.set()
        ids = {one.result().json()["id"] for one in asked}
    assert len(ids) == 1
    assert policy.calls == 2  # turns of one run


def test_a_request_that_failed_is_asked_anew_under_its_key(gateway, place):
    client = gateway(FixedPolicy(STARS), **place)
    wrong = {"question": "Who starred in Big?", "kg": "none"}
    for _ in range(2):
        assert client.post("/v1/answer", json=wrong, headers={"Idempotency-Key": "k"}).status_code == 404


def test_an_answer_under_a_key_takes_one_place(gateway, place):
    client = gateway(FixedPolicy(STARS), answers_kept=2, **place)
    ids = [ask(client, key).json()["id"] for key in ("a", "b", "c")]
    assert [client.get(f"/v1/answers/{id_}").status_code for id_ in ids] == [404, 200, 200]
    assert ask(client, "c").json()["id"] == ids[2]
    assert ask(client, "a").json()["id"] != ids[0]


def test_a_request_whose_answer_was_evicted_is_asked_anew(gateway, redis_url):
    client = gateway(FixedPolicy(STARS), redis_url=redis_url)
    first = ask(client, "k").json()["id"]
    with redis.Redis.from_url(redis_url) as server:
        assert server.delete(*server.scan_iter(f"*:answer:*{first}")) == 1
    second = ask(client, "k").json()["id"]
    assert second != first
    assert ask(client, "k").json()["id"] == second


def test_without_redis_a_repeated_request_is_refused_and_others_are_answered(gateway):
    client = gateway(FixedPolicy(STARS), redis_url="redis://127.0.0.1:9/0", redis_timeout_s=0.5)
    assert ask(client).status_code == 200
    refused = ask(client, "k")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert "ask again without an Idempotency-Key" in refused.json()["detail"]


def test_feedback_becomes_questions_to_train_on(gateway, tmp_path):
    client = gateway(FixedPolicy(STARS))
    said = [
        {"verdict": "right"},
        {"verdict": "wrong", "answers": ["Penny Marshall"], "comment": "she too"},
        {"verdict": "wrong"},
    ]
    for about, feedback in zip(("Big", "Philadelphia", "Tom Hanks"), said, strict=True):
        document = ask(client, question=f"Who starred in {about}?").json()
        kept = client.post("/v1/feedback", json={"answer_id": document["id"], **feedback})
        assert kept.status_code == 201
    path = feedback_path(tmp_path)
    records = questions_of(read_feedback(path), "films")
    assert [(r["text"], set(r["answers"]), r["topic_entities"], r["kg"]) for r in records] == [
        ("Who starred in Big?", {"Elizabeth Perkins", "Tom Hanks"}, ["Big"], "films"),
        ("Who starred in Philadelphia?", {"Penny Marshall"}, ["Philadelphia"], "films"),
    ]
    assert questions_of(read_feedback(path), "rdf") == []
    (tmp_path / "said.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records * 20))
    dataset = load_dataset("said.jsonl", 1, tmp_path)
    assert dataset.graph.name == "films"
    assert {q.text for q in (*dataset.splits.train, *dataset.splits.test)} <= {r["text"] for r in records}
    metrics = client.get("/metrics").text
    assert 'kbqa_gateway_feedback_total{verdict="wrong"} 2.0' in metrics


def test_what_was_said_last_holds_and_half_a_line_hurts_nobody(gateway, tmp_path):
    client = gateway(FixedPolicy(STARS))
    document = ask(client).json()
    path = feedback_path(tmp_path)

    def say(**feedback):
        assert client.post("/v1/feedback", json={"answer_id": document["id"], **feedback}).status_code == 201

    say(verdict="right")
    with path.open("a") as file:
        file.write('{"id": "torn')
    say(verdict="partly", answers=["Tom Hanks"])
    assert [record["answers"] for record in questions_of(read_feedback(path))] == [["Tom Hanks"]]


def test_gateways_keep_files_of_their_own_and_the_last_word_is_that_of_all(gateway, tmp_path):
    folder = tmp_path / "gateway"
    for name, gold in (("b", "Penny Marshall"), ("a", "Tom Hanks")):
        client = gateway(FixedPolicy(STARS), feedback_file=folder / f"feedback-{name}.jsonl")
        said = {"answer_id": ask(client).json()["id"], "verdict": "partly", "answers": [gold]}
        assert client.post("/v1/feedback", json=said).status_code == 201
    files = feedback_files(tmp_path)
    assert [path.name for path in files] == ["feedback-a.jsonl", "feedback-b.jsonl"]
    assert [record["answers"] for record in questions_of(read_feedback(*files))] == [["Tom Hanks"]]


def test_feedback_is_bounded_and_says_so(gateway, tmp_path):
    client = gateway(FixedPolicy(STARS), feedback_mb=1)
    path = feedback_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n" * (2**20 - 10))
    document = ask(client).json()
    refused = client.post("/v1/feedback", json={"answer_id": document["id"], "verdict": "right"})
    assert (refused.status_code, refused.json()["type"]) == (507, "urn:kbqa:problem:feedback-full")
    assert "kbqa feedback export" in refused.json()["detail"]


@pytest.mark.parametrize(
    "feedback",
    [{}, {"verdict": "good"}, {"verdict": "right", "more": 1}, {"verdict": "right", "answers": []}],
)
def test_feedback_that_says_nothing_is_refused(gateway, feedback):
    client = gateway(FixedPolicy(STARS))
    assert client.post("/v1/feedback", json={"answer_id": "x", **feedback}).status_code == 422


def test_who_answers_is_told(gateway):
    client = gateway(FixedPolicy(STARS))
    assert client.get("/v1/policies").json() == {
        "serving": {
            "policy": "scripted",
            "version": "v000001-scripted",
            "recipe": "kg-r1-small",
            "fallback": None,
        },
        "policies": [],
    }

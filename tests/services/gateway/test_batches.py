"""Batches through the routes of a real gateway, with policies that recite and a graph in this process."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient

from kbqa.client.batches import BatchAnswer, BatchModel
from kbqa.errors import PolicyUnavailableError
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from services.access.keys import KeyFile
from services.gateway.access.settings import keys_path
from services.gateway.app import create_app
from services.gateway.batches.files import BatchFiles, batches_path
from services.gateway.settings import GatewaySettings
from services.gateway.usage import read_usage, usage_path
from tests.services.gateway.conftest import CODEC, TRIPLES, FixedPolicy, answer, query, recite
from tests.unit.policies_fixtures import ScriptedPolicy

STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))
ASKED = {"question": "Who starred in Big?", "kg": "films"}


class GatedPolicy(ScriptedPolicy):
    """Waits to be released before each turn of questions that contain a word, and notes who is answered."""

    def __init__(self, word):
        super().__init__(CODEC, STARS)
        self.word, self.go, self.under_way, self.most = word, threading.Event(), 0, 0

    def generate(self, *prompts, **how):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.word in str(CODEC.decode(prompts[0][0])):
            assert self.go.wait(30)
        self.under_way -= 1
        return super().generate(*prompts, **how)


@pytest.fixture(scope="module")
def graphs():
    stores = {name: OxigraphStore.from_triples(TRIPLES) for name in ("films", "rdf")}
    return LocalGraphTools(FixedGraphs(stores), deadline_s=300)


@pytest.fixture
def gateway(graphs, tmp_path):
    """Makes clients of gateways with one home."""
    with ExitStack() as opened:

        def make(policies, **settings):
            loaded = GatewaySettings.load(home=tmp_path, reader=False, timeout_s=300, **settings)
            return opened.enter_context(TestClient(create_app(loaded, policies, graphs)))

        yield make


def until(holds):
    """Wait until something holds; the time only bounds a failure."""
    deadline = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(*asked):
    return "".join(json.dumps(one) + "\n" if isinstance(one, dict) else f"{one}\n" for one in asked)


def send(client, *asked, **headers):
    return client.post("/v1/batches", content=lines(*asked), headers=headers)


def progress(client, id_, **headers):
    return BatchModel.model_validate(client.get(f"/v1/batches/{id_}", headers=headers).json())


def ended(client, id_, **headers):
    until(lambda: progress(client, id_, **headers).state == "done")
    return progress(client, id_, **headers)


def answers(client, id_, after=0, **headers):
    text = client.get(f"/v1/batches/{id_}/answers", params={"after": after}, headers=headers).text
    return [BatchAnswer.model_validate_json(line) for line in text.splitlines()]


def test_each_line_gets_one_answer_with_its_id(gateway):
    client = gateway(FixedPolicy(STARS))
    created = send(client, {"id": "a", **ASKED}, ASKED, {"id": "c", **ASKED, "n_runs": 2})
    assert created.status_code == 202
    batch = ended(client, created.json()["id"])
    assert (batch.lines, batch.answered, batch.errors) == (3, 3, 0)
    found = answers(client, batch.id)
    assert sorted((one.line, one.id) for one in found) == [(1, "a"), (2, "2"), (3, "c")]
    assert {one.answer.status for one in found} == {"answered"}
    assert answers(client, batch.id, after=2) == found[2:]
    assert answers(client, batch.id, after=9) == []


BAD = [  # line, its id if it can be read, status, and what the error says
    ("{", None, 422, "JSON"),
    ('{"question": "Who?", "id": "no kg"}', "no kg", 422, "kg"),
    ({**ASKED, "id": "streams", "stream": True}, "streams", 422, "stream"),
    ({**ASKED, "id": "talks", "session": "new"}, "talks", 422, "session"),
    ({**ASKED, "question": " "}, None, 422, "empty"),
    ({**ASKED, "kg": "nowhere"}, None, 404, "nowhere"),
    ({**ASKED, "n_runs": 99}, None, 422, "at most 8"),
    ({**ASKED, "id": "first"}, "first", 422, "earlier line"),
    ("[" * 5000, None, 422, "JSON"),
    ({**ASKED, "question": "w" * 4000}, None, 422, "characters"),
    ({**ASKED, "question": "w" * 2**18}, None, 422, "longer than 262144 bytes"),
]


def test_a_bad_line_gets_a_typed_error_and_the_others_are_answered(gateway):
    client = gateway(FixedPolicy(STARS))
    asked = [{**ASKED, "id": "first"}, "", *(line for line, *_ in BAD), ASKED]
    batch = ended(client, send(client, *asked).json()["id"])
    assert (batch.lines, batch.answered, batch.errors) == (len(BAD) + 2, len(BAD) + 2, len(BAD))
    by_line = {one.line: one for one in answers(client, batch.id)}
    for number, (_, id_, status, says) in enumerate(BAD, 3):
        bad = by_line.pop(number)
        assert (bad.id, bad.error.status, bad.answer) == (id_ or str(number), status, None)
        assert says in bad.error.detail
        assert bad.error.type.startswith("urn:kbqa:problem:")
    assert sorted((one.id, one.answer.status) for one in by_line.values()) == [
        (str(len(BAD) + 3), "answered"),
        ("first", "answered"),
    ]


def test_the_same_batch_sent_twice_under_one_key_is_one_batch(gateway):
    client = gateway(FixedPolicy(STARS))
    first, again = (send(client, ASKED, **{"Idempotency-Key": "k"}).json()["id"] for _ in range(2))
    assert first == again
    assert [batch["id"] for batch in client.get("/v1/batches").json()["batches"]] == [first]
    other = send(client, {**ASKED, "n_runs": 2}, **{"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["type"]) == (422, "urn:kbqa:problem:idempotency-mismatch")


@pytest.mark.parametrize(
    ("body", "settings", "status", "says"),
    [
        ("", {}, 422, "between 1 and"),
        ("\n \n", {}, 422, "send a question on each line"),
        (lines(ASKED, ASKED), {"batch_lines": 1}, 422, "send several batches"),
        ("x" * (2**20 + 1), {"batch_mb": 1}, 413, "larger"),
    ],
)
def test_a_batch_that_is_empty_or_too_large_is_refused(gateway, body, settings, status, says):
    refused = gateway(FixedPolicy(STARS), **settings).post("/v1/batches", content=body)
    assert (refused.status_code, says in refused.json()["detail"]) == (status, True)


def test_a_key_has_so_many_batches_until_it_deletes_one(gateway):
    client = gateway(FixedPolicy(STARS), batches_kept=1)
    id_ = send(client, ASKED).json()["id"]
    refused = send(client, ASKED)
    assert (refused.status_code, "delete it" in refused.json()["detail"]) == (409, True)
    assert client.delete(f"/v1/batches/{id_}").status_code == 204
    assert client.get(f"/v1/batches/{id_}").status_code == 404
    assert send(client, ASKED).status_code == 202


def test_a_cancelled_batch_keeps_what_is_ready_and_begins_nothing_more(gateway, tmp_path):
    policy = GatedPolicy("slow")
    client = gateway(FixedPolicy(policy=policy), batch_concurrency=1)
    slow = {**ASKED, "question": "slow: Who starred in Big?"}
    id_ = send(client, ASKED, slow, slow, slow).json()["id"]
    until(lambda: progress(client, id_).answered)
    cancelled = client.post(f"/v1/batches/{id_}/cancel").json()
    policy.go.set()
    assert (cancelled["state"], cancelled["answered"]) == ("cancelled", 1)
    time.sleep(0.3)
    assert [one.line for one in answers(client, id_)] == [1]
    assert client.delete(f"/v1/batches/{id_}").status_code == 204
    assert not any(batches_path(tmp_path).iterdir())


def test_who_waits_is_answered_while_a_batch_has_all_its_places(gateway):
    policy = GatedPolicy("slow")
    client = gateway(FixedPolicy(policy=policy), concurrency=1, queue=0, batch_concurrency=2)
    slow = {**ASKED, "question": "slow: Who starred in Big?"}
    id_ = send(client, *[slow] * 8).json()["id"]
    until(lambda: policy.under_way == 2)
    assert client.post("/v1/answer", json=ASKED).json()["status"] == "answered"
    policy.go.set()
    assert ended(client, id_).answered == 8
    assert policy.most <= 3


def test_a_passing_failure_does_not_fail_a_line(gateway):
    class Moody(ScriptedPolicy):
        failures = 2

        def generate(self, *prompts, **how):
            if self.failures:
                self.failures -= 1
                raise PolicyUnavailableError("not now")
            return super().generate(*prompts, **how)

    client = gateway(FixedPolicy(policy=Moody(CODEC, STARS)), batch_concurrency=1)
    assert ended(client, send(client, ASKED).json()["id"]).errors == 0


def test_a_batch_has_the_rights_of_its_key_and_nobody_else_sees_it(gateway, tmp_path):
    keys = KeyFile(keys_path(tmp_path))
    record, key = keys.create("mine", graphs=("films",), quota="2/day")
    _, other = keys.create("other")
    client = gateway(FixedPolicy(STARS))
    mine, theirs = {"Authorization": f"Bearer {key}"}, {"Authorization": f"Bearer {other}"}
    id_ = send(client, ASKED, {**ASKED, "kg": "rdf"}, ASKED, ASKED, **mine).json()["id"]
    until(lambda: (progress(client, id_, **mine).waiting or "").startswith("more questions than"))
    until(lambda: progress(client, id_, **mine).answered == 3)  # the third line may be under way still
    batch = progress(client, id_, **mine)
    assert (batch.state, batch.errors) == ("running", 1)
    (forbidden,) = (one for one in answers(client, id_, **mine) if one.error)
    assert (forbidden.line, forbidden.error.status) == (2, 403)
    for method, path in (("GET", ""), ("GET", "/answers"), ("POST", "/cancel"), ("DELETE", "")):
        assert client.request(method, f"/v1/batches/{id_}{path}", headers=theirs).status_code == 404
    assert client.get("/v1/batches", headers=theirs).json() == {"batches": []}


def test_lines_of_a_key_that_was_revoked_get_an_error(gateway, tmp_path):
    keys = KeyFile(keys_path(tmp_path))
    record, key = keys.create("mine")
    files = BatchFiles(batches_path(tmp_path), most_lines=9, kept=9, ttl_s=9)
    batch = files.create(record.id, record.id, lines(ASKED, ASKED).encode())
    keys.revoke("mine")
    gateway(FixedPolicy(STARS))

    def read():
        batch.answers.read()
        return batch.answers.count

    until(lambda: read() == 2)
    found = [json.loads(line) for line in b"".join(batch.answers.after(0)).splitlines()]
    assert [one["error"]["type"] for one in found] == ["urn:kbqa:problem:key-revoked"] * 2


def test_a_gateway_goes_on_where_another_one_was_killed(gateway, tmp_path):
    """The files are as a killed gateway leaves them: two answers, and the beginning of a third."""
    files = BatchFiles(batches_path(tmp_path), most_lines=9, kept=9, ttl_s=9)
    batch = files.create("", "somebody", lines(*[ASKED] * 5).encode())
    with batch.lock() as held:
        assert held
        for line in (4, 2):
            batch.answers.append(BatchAnswer(line=line, id=f"earlier-{line}"))
    with (batch.directory / "answers.jsonl").open("ab") as file:
        file.write(b'{"line":1,"id":"1","answer":{"id"')
    client = gateway(FixedPolicy(STARS))
    assert ended(client, batch.record.id).answered == 5
    found = answers(client, batch.record.id)
    assert [one.id for one in found[:2]] == ["earlier-4", "earlier-2"]
    assert sorted(one.line for one in found) == [1, 2, 3, 4, 5]


def test_two_gateways_with_one_home_answer_each_line_once(gateway):
    policies = [FixedPolicy(STARS) for _ in range(2)]
    first, second = (gateway(policy) for policy in policies)
    asked = [{**ASKED, "id": f"q{number}"} for number in range(40)]
    id_ = send(first, *asked).json()["id"]
    assert ended(second, id_).answered == 40
    assert sorted(one.id for one in answers(second, id_)) == sorted(one["id"] for one in asked)


def test_batches_expire_after_their_last_answer(tmp_path):
    files = BatchFiles(tmp_path, most_lines=9, kept=9, ttl_s=0.0)
    done, running = (files.create("a", "a", b"{}\n") for _ in range(2))
    done.answers.append(BatchAnswer(line=1, id="1"))
    time.sleep(0.01)
    files.expire()
    assert [batch.record.id for batch in files.all()] == [running.record.id]


def test_a_batch_with_a_damaged_file_does_not_hold_up_the_others(gateway, tmp_path):
    files = BatchFiles(batches_path(tmp_path), most_lines=9, kept=9, ttl_s=9)
    damaged = files.create("", "somebody", lines(ASKED).encode())
    (damaged.directory / "answers.jsonl").write_bytes(b"\0\0\0\n")
    client = gateway(FixedPolicy(STARS))
    whole = send(client, ASKED).json()["id"]
    assert ended(client, whole).answered == 1
    assert [batch["id"] for batch in client.get("/v1/batches").json()["batches"]] == [whole]
    refused = client.get(f"/v1/batches/{damaged.record.id}")
    assert (refused.status_code, refused.json()["type"]) == (500, "urn:kbqa:problem:batch-damaged")
    assert client.delete(f"/v1/batches/{damaged.record.id}").status_code == 204


def test_what_a_batch_costs_is_counted_for_its_key(graphs, tmp_path):
    keys = KeyFile(keys_path(tmp_path))
    record, key = keys.create("mine")
    loaded = GatewaySettings.load(home=tmp_path, reader=False)
    mine = {"Authorization": f"Bearer {key}"}
    with TestClient(create_app(loaded, FixedPolicy(STARS), graphs)) as client:
        ended(client, send(client, {**ASKED, "n_runs": 2}, **mine).json()["id"], **mine)
        client.post("/v1/answer", json=ASKED, headers=mine)
    text = TestClient(client.app.state.operations).get("/metrics").text
    assert 'kbqa_gateway_key_questions_total{key="mine"} 2.0' in text
    assert 'kbqa_gateway_key_calls_total{key="mine"} 6.0' in text
    assert 'kbqa_gateway_batch_lines_total{outcome="answered"} 1.0' in text
    used = read_usage(usage_path(tmp_path))
    assert (used[record.id].questions, used[record.id].llm_calls) == (2, 6)

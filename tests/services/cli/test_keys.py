"""`kbqa keys` and `kbqa feedback`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from prometheus_client import CollectorRegistry

from kbqa.client.models import Usage
from kbqa.feedback import Feedback, feedback_path
from kbqa.telemetry.metrics import Metrics
from services.access.keys import KeyFile, Keys
from services.gateway.access.control import Caller
from services.gateway.access.settings import keys_path
from services.gateway.usage import UsageLedger, usage_path


def test_a_key_is_printed_once_and_opens_the_door(in_process, tmp_path):
    options = (
        "--graph",
        "films",
        "--graph",
        "rdf",
        "--days",
        "30",
        "--rate",
        "60/minute",
        "--min-confidence",
        "0.8",
    )
    code, out, err = in_process("keys", "create", "reports", *options)
    assert code == 0
    assert "is not shown again" in err
    assert "restart the service" in err
    record = Keys(KeyFile(keys_path(tmp_path / "home"))).find(out.strip().encode())
    assert (record.name, record.graphs, record.rate) == ("reports", ("films", "rdf"), "60/minute")
    assert record.min_confidence == 0.8
    assert 29 <= (record.expires - datetime.now(UTC)).days <= 30
    code, listed, _ = in_process("keys", "list")
    assert code == 0
    assert "films, rdf" in listed
    assert out.strip() not in listed


def test_a_revoked_key_is_listed_as_such(in_process):
    key = json.loads(in_process("keys", "create", "a", "--json")[1])
    assert in_process("keys", "revoke", key["id"])[:2] == (0, f"revoked a ({key['id']})\n")
    (listed,) = json.loads(in_process("keys", "list", "--json")[1])
    assert (listed["state"], listed["graphs"]) == ("revoked", ["*"])
    assert "digest" not in listed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "a", "--rate", "fast"), "write 60/minute"),
        (("revoke", "nobody"), "kbqa keys list shows all keys"),
    ],
)
def test_what_cannot_be_done_is_said_with_the_remedy(in_process, arguments, says):
    code, _, err = in_process("keys", *arguments)
    assert (code, says in err) == (2, True)


def test_without_keys_it_is_said_what_that_means(in_process):
    assert "everybody who can reach the gateway may ask" in in_process("keys", "list")[1]


@pytest.fixture
def judged(tmp_path):
    """Writes feedback on questions about `films`, each with its gold answers."""

    def write(*golds):
        path = feedback_path(tmp_path / "home")
        path.parent.mkdir(parents=True)
        lines = [
            Feedback(
                id=str(n),
                time=datetime.now(UTC),
                owner="",
                answer_id="a",
                verdict="right" if gold else "wrong",
                question=f"question {n}?",
                kg="films",
                topic_entities=("Big",),
                policy_version="v",
                status="answered",
                answers=("x",),
                gold=gold,
            ).model_dump_json()
            for n, gold in enumerate(golds)
        ]
        path.write_text("\n".join(lines) + "\n")

    return write


def test_feedback_is_exported_as_questions(in_process, judged, tmp_path):
    judged(("Tom Hanks",), None, ("1988",))
    out = tmp_path / "said.jsonl"
    assert in_process("feedback", "export", str(out))[:2] == (0, f"wrote 2 questions to {out}\n")
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(record["id"], record["answers"]) for record in records] == [
        ("feedback-0", ["Tom Hanks"]),
        ("feedback-2", ["1988"]),
    ]


def test_without_a_gold_answer_there_is_nothing_to_export(in_process, judged, tmp_path):
    assert "no feedback yet" in in_process("feedback", "export", str(tmp_path / "x"))[2]
    judged(None)
    code, _, err = in_process("feedback", "export", str(tmp_path / "x"))
    assert (code, "says which answers are correct" in err) == (2, True)


def test_the_usage_of_keys_adds_up_all_gateways_and_days(in_process, tmp_path):
    home = tmp_path / "home"
    record, _ = KeyFile(keys_path(home)).create("reports")
    caller = Caller(record.id, "reports", record.id, None, None, None, 0.0)
    cost = Usage(llm_calls=2, prompt_tokens=30, generated_tokens=4, kg_calls=5, elapsed_ms=1500.0)
    assert in_process("keys", "usage")[:2] == (0, "no question has been answered yet\n")
    for day in (1, 2):
        ledger = UsageLedger(usage_path(home), Metrics(CollectorRegistry()), lambda: date(2026, 11, day))  # noqa: B023
        ledger.count(caller, cost)
        ledger.count(replace(caller, owner="", name=""), cost)
        asyncio.run(ledger.close())
    mine, nobodys = json.loads(in_process("keys", "usage", "--json")[1])[::-1]
    assert (mine["name"], mine["questions"], mine["llm_calls"], mine["seconds"]) == ("reports", 2, 4, 3.0)
    assert (nobodys["id"], nobodys["questions"]) == ("", 2)
    (later, _) = json.loads(in_process("keys", "usage", "--since", "2026-11-02", "--json")[1])[::-1]
    assert (later["questions"], later["prompt_tokens"], later["generated_tokens"]) == (1, 30, 4)
    code, out, _ = in_process("keys", "usage")
    assert (code, "reports" in out, "callers without a key" in out) == (0, True, True)

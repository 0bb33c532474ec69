"""`kbqa ask --file` against a real gateway, with policies that recite and a graph in this process."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from kbqa.client import Gateway
from kbqa.client.batches import BatchAnswer
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import TRIPLES, FixedPolicy, answer, query, recite

STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))
QUESTION = "Who starred in Big?"


@pytest.fixture
def gateway(monkeypatch, in_process, tmp_path):
    """Serves a gateway that `kbqa ask` finds by itself, for the rest of the test."""
    films = LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}), deadline_s=300)
    settings = GatewaySettings.load(home=tmp_path / "home", reader=False, timeout_s=300)
    with ExitStack() as opened:

        def make(policies):
            monkeypatch.setenv(
                "KBQA_GATEWAY_URL", opened.enter_context(background(create_app(settings, policies, films)))
            )

        yield make


def questions_file(path, *records):
    path.write_text("".join(f"{json.dumps(one) if isinstance(one, dict) else one}\n" for one in records))
    return str(path)


def outcomes(path):
    return [BatchAnswer.model_validate_json(line) for line in path.read_text().splitlines()]


def test_a_file_of_questions_gets_one_answer_a_line(gateway, in_process, tmp_path):
    gateway(FixedPolicy(STARS))
    record = {"id": "r", "text": QUESTION, "answers": ["Tom Hanks"], "topic_entities": ["Big"], "kg": "films"}
    asked = questions_file(
        tmp_path / "q.jsonl", {"question": QUESTION}, "", record, "{", {"question": "?", "x": 1}
    )
    output = tmp_path / "a.jsonl"
    command = ("ask", "--file", asked, "--output", str(output), "--kg", "films", "--runs", "2")
    code, out, _ = in_process(*command)
    assert (code, out) == (0, f"{output}: answers to 4 questions; 2 of them are errors\n")
    by_id = {one.id: one for one in outcomes(output)}
    assert sorted((one.line, id_) for id_, one in by_id.items()) == [(1, "1"), (3, "r"), (4, "4"), (5, "5")]
    assert [len(by_id[id_].answer.runs) for id_ in ("1", "r")] == [2, 2]
    assert by_id["r"].answer.linking.topic_entities == ["Big"]
    assert "JSON" in by_id["4"].error.detail or "property name" in by_id["4"].error.detail
    assert "x: Extra" in by_id["5"].error.detail
    assert not output.with_name("a.jsonl.batch").exists()
    assert in_process(*command)[0] == 0
    assert len(outcomes(output)) == 4


def test_a_file_of_questions_goes_on_where_the_output_ends(gateway, in_process, tmp_path):
    policy = FixedPolicy(STARS)
    gateway(policy)
    asked = questions_file(
        tmp_path / "q.jsonl", *[{"question": f"{QUESTION} {n}", "kg": "films"} for n in range(5)]
    )
    output = tmp_path / "a.jsonl"
    command = ("ask", "--file", asked, "--output", str(output))
    assert in_process(*command)[0] == 0
    lines = output.read_text().splitlines(keepends=True)
    output.write_text("".join(lines[:2]) + lines[2][:20])  # as if it had been killed while it wrote
    code, out, _ = in_process(*command)
    assert (code, out) == (0, f"{output}: answers to 5 questions\n")
    assert output.read_text().startswith("".join(lines[:2]))
    assert sorted(one.line for one in outcomes(output)) == [1, 2, 3, 4, 5]


def test_a_batch_that_an_interrupted_call_has_left_is_found_again(gateway, in_process, tmp_path, monkeypatch):
    gateway(FixedPolicy(STARS))
    asked = questions_file(tmp_path / "q.jsonl", *[{"question": QUESTION, "kg": "films"}] * 3)
    output = tmp_path / "a.jsonl"

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("services.cli.ask_file.FileOfQuestions._keep", interrupt)
        code, out, _ = in_process("ask", "--file", asked, "--output", str(output))
        assert (code, "the same command again" in out) == (130, True)
    note = json.loads(output.with_name("a.jsonl.batch").read_text())
    with Gateway(note["gateway"]) as client:
        assert [batch.id for batch in client.batches()] == [note["batch"]]
        assert in_process("ask", "--file", asked, "--output", str(output))[0] == 0
        assert client.batches() == []
    assert sorted(one.line for one in outcomes(output)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("records", "options", "says"),
    [
        (
            [{"question": "?", "id": "a"}, {"question": "?", "id": "a"}],
            (),
            'lines 1 and 2 have the same id "a"',
        ),
        ([""], (), "has no questions"),
        ([{"question": "?"}], ("Who?",), "or files"),
    ],
)
def test_files_that_cannot_be_asked_are_refused(in_process, tmp_path, records, options, says):
    asked = questions_file(tmp_path / "q.jsonl", *records)
    code, _, err = in_process("ask", *options, "--file", asked, "--output", str(tmp_path / "a"))
    assert (code, says in err) == (2, True)


def test_an_output_that_holds_something_else_is_not_touched(in_process, tmp_path):
    asked = questions_file(tmp_path / "q.jsonl", {"question": "?"})
    for output in (asked, str(tmp_path / "missing" / "a")):
        assert in_process("ask", "--file", asked, "--output", output)[0] == 2
    assert json.loads((tmp_path / "q.jsonl").read_text()) == {"question": "?"}

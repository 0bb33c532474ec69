"""Judges: a match after normalisation, and a model behind an endpoint that may fail."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kbqa.errors import JudgeUnavailableError
from kbqa.judges import JUDGES, ChatJudge, MatchingJudge


@pytest.mark.parametrize(
    ("gold", "answers", "correct", "found"),
    [
        (["Paris"], [" paris. "], True, (True,)),
        (["Paris", "Rome"], ["Rome", "Paris"], True, (True, True)),
        (["Paris", "Rome"], ["Rome"], False, (False, True)),
        (["Paris"], ["Paris", "Rome"], False, (True,)),
        (["Paris"], [], False, (False,)),
    ],
)
def test_a_match_is_equality_after_normalisation(gold, answers, correct, found):
    verdict = MatchingJudge().verdict("?", gold, answers)
    assert (verdict.correct, verdict.found) == (correct, found)


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.headers.get("Authorization"), body))
        status, content = self.server.script.pop(0)
        reply = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint():
    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.asked, server.script = [], []
        server.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_model_is_asked_once_for_equal_cases_at_temperature_0(endpoint, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    endpoint.script = [(200, 'Sure: {"found": [1, 0], "correct": false, "justification": "half"}')]
    judge = JUDGES.build(
        "chat", {"model": "m", "base_url": endpoint.url, "api_key_variable": "MY_KEY", "timeout_s": 5}
    )
    for _ in range(2):
        verdict = judge.verdict("who?", ["A", "B"], ["A"])
        assert (verdict.correct, verdict.found, verdict.justification) == (False, (True, False), "half")
    [(authorization, body)] = endpoint.asked
    assert authorization == "Bearer secret"
    assert (body["model"], body["temperature"]) == ("m", 0)
    assert json.loads(body["messages"][1]["content"])["gold answers"] == ["A", "B"]


def test_a_model_is_told_what_ids_are_called(endpoint):
    endpoint.script = [(200, '{"found": [1], "correct": true, "justification": ""}')]
    judge = ChatJudge("m", endpoint.url, timeout_s=5)
    assert judge.verdict("which land?", ["Q38"], ["Italia"], {"Q38": ("Italy",)}).correct
    [(_, body)] = endpoint.asked
    assert json.loads(body["messages"][1]["content"]) == {
        "question": "which land?",
        "gold answers": ["Q38"],
        "answer": ["Italia"],
        "names": {"Q38": ["Italy"]},
    }


@pytest.mark.parametrize(
    "script",
    [
        [(500, "")] * 3,
        [(200, "I think so.")] * 3,
        [(200, '{"found": [1], "correct": true}')] * 3,  # two gold answers
        [(200, '{"found": [1, 1], "correct": "yes"}')] * 3,
    ],
)
def test_no_verdict_is_an_error_and_never_incorrect(endpoint, script):
    endpoint.script = list(script)
    with pytest.raises(JudgeUnavailableError, match="gave no verdict"):
        ChatJudge("m", endpoint.url, timeout_s=5).verdict("who?", ["A", "B"], ["A"])
    assert len(endpoint.asked) == 3


def test_a_second_attempt_may_succeed(endpoint):
    endpoint.script = [(503, ""), (200, '{"found": [1], "correct": true, "justification": ""}')]
    assert ChatJudge("m", endpoint.url, timeout_s=5).verdict("again?", ["A"], ["A"]).correct


def test_an_endpoint_that_is_not_there_is_an_error():
    with pytest.raises(JudgeUnavailableError):
        ChatJudge("m", "http://127.0.0.1:9/v1", timeout_s=1).verdict("?", ["A"], ["A"])

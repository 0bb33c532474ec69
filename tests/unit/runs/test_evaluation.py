"""A version is evaluated by its own answers to every question, or not at all."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from kbqa.errors import RunError
from kbqa.runs.evaluation import Evaluator
from kbqa.wire import FailureReason
from tests.unit.runs.exchange import QUESTIONS, make_reply, make_request

VERSION = SimpleNamespace(id="v000001-aaaaaaaa", number=1)


class Rollouts:
    """Answers what is asked by `answer(request, attempt)` in the order of asking; None: never."""

    def __init__(self, answer) -> None:
        self._answer, self._asked, self._replies = answer, Counter(), []
        self.most, self._lost, self.pauses = 0, [], []

    def open(self, kind, *, spent, deadline_s):
        return self

    def ask(self, request) -> None:
        self._asked[request.question.id] += 1
        reply = self._answer(request, self._asked[request.question.id])
        if reply is None:
            self._lost.append(request.request_id)
        else:
            self._replies.append(reply)
        self.most = max(self.most, len(self._replies))

    def ask_anew(self, request, after_s=0.0) -> None:
        self.pauses.append(after_s)
        self.ask(request)

    def receive(self, wait_s):
        taken, self._replies = self._replies, []
        return taken

    def give_up(self):
        return self._lost

    def release(self):
        """Nothing is kept."""
        return lambda: None


def evaluate(answer):
    source = Rollouts(answer)
    evaluator = Evaluator(
        make_request, source, max_in_flight=2, deadline_s=1.0, check=lambda: None, look=lambda _: None
    )
    return evaluator.evaluate(VERSION, QUESTIONS, "validation"), source


def test_every_question_counts_and_few_are_out_at_a_time():
    found, source = evaluate(lambda request, _: make_reply(request.request_id, VERSION.id))
    assert (found.questions, found.split, found.version) == (5, "validation", VERSION.id)
    assert found.f1 == 0.5
    assert found.to_json()["f1"] == 0.5
    assert source.most == 2
    assert len(found.groups) == 5
    assert "groups" not in found.to_json()


@pytest.mark.parametrize(
    "reason",
    [
        FailureReason.GRAPH_UNAVAILABLE,
        FailureReason.POLICY_UNAVAILABLE,
        FailureReason.VERSION_REFUSED,
        FailureReason.CLOCK_OFF,
    ],
)
def test_it_waits_for_a_worker_that_can_answer(reason):
    def answer(request, attempt):
        failure = reason if request.question.id == "q3" and attempt < 20 else None
        return make_reply(request.request_id, VERSION.id, failure=failure)

    found, source = evaluate(answer)
    assert found.questions == 5
    assert len(source.pauses) == 19
    assert source.pauses[0] <= 1 < 30 <= source.pauses[-1] <= 60


def test_a_question_that_fails_by_itself_ends_it_with_the_reason():
    def answer(request, attempt):
        failure = FailureReason.INTERNAL if request.question.id == "q3" else None
        return make_reply(request.request_id, VERSION.id, failure=failure, worker=f"w{attempt}")

    with pytest.raises(RunError, match="validation question q3: .*internal: why"):
        evaluate(answer)


def test_a_question_that_nobody_answers_ends_it():
    def answer(request, _):
        return None if request.question.id == "q1" else make_reply(request.request_id, VERSION.id)

    with pytest.raises(RunError, match="question q1 was never answered"):
        evaluate(answer)


def test_answers_of_another_version_are_no_evaluation():
    with pytest.raises(RunError, match="evaluation of v000001-aaaaaaaa was answered by .*v000002-bbbbbbbb"):
        evaluate(lambda request, _: make_reply(request.request_id, VERSION.id, "v000002-bbbbbbbb"))

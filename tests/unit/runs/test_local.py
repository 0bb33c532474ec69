"""Rollouts in threads of this process: each reply comes once, and a run that is over waits for none."""

from __future__ import annotations

import threading
import time

import pytest

from kbqa.runs.local import LocalSource
from kbqa.wire import FailureReason
from tests.unit.runs.exchange import QUESTIONS, make_reply, make_request

PATIENCE_S = 60.0


def opened(source: LocalSource):
    return source.open("t", spent=lambda _: False, deadline_s=1.0)


def received(rollouts, count: int) -> list[str]:
    """Ids of the next replies; fails where one does not come."""
    found: list[str] = []
    while len(found) < count:
        replies = rollouts.receive(PATIENCE_S)
        assert replies
        found += [reply.request_id for reply in replies]
    return found


def test_every_request_is_answered_once_and_none_is_given_up():
    source = LocalSource(lambda request: make_reply(request.request_id, "v1"), width=3)
    rollouts = opened(source)
    names = [f"t{number}" for number in range(10)]
    for name in names:
        rollouts.ask(make_request(name, QUESTIONS[0], 1))
    assert sorted(received(rollouts, 10)) == names
    assert rollouts.receive(0.0) == []
    assert rollouts.give_up() == []
    rollouts.release()()
    assert rollouts.counters == {"resent": 0, "renewed": 0, "duplicates": 0}
    source.close()


def test_what_is_asked_anew_is_played_again_and_counted():
    played: list[str] = []

    def execute(request):
        played.append(request.request_id)
        return make_reply(request.request_id, failure=FailureReason.INTERNAL)

    source = LocalSource(execute, width=1)
    rollouts = opened(source)
    rollouts.ask(make_request("t0", QUESTIONS[0], 1))
    assert received(rollouts, 1) == ["t0"]
    rollouts.ask_anew(make_request("t0", QUESTIONS[0], 1))
    assert received(rollouts, 1) == ["t0"]
    assert played == ["t0", "t0"]
    assert rollouts.counters["renewed"] == 1
    source.close()


def test_what_was_not_begun_is_not_played_after_the_end():
    begun, go, played = threading.Event(), threading.Event(), []

    def execute(request):
        begun.set()
        assert go.wait(PATIENCE_S)
        played.append(request.request_id)
        return make_reply(request.request_id, "v1")

    source = LocalSource(execute, width=1)
    rollouts = opened(source)
    for name in ("t0", "t1", "t2"):
        rollouts.ask(make_request(name, QUESTIONS[0], 1))
    assert begun.wait(PATIENCE_S)
    ending = threading.Thread(target=source.close)
    ending.start()
    # Whoever can ask no more comes after the end has begun, which cancels what waits first of all.
    with pytest.raises(RuntimeError, match="shutdown"):  # noqa: PT012 (it is asked until then)
        while True:
            rollouts.ask(make_request("t3", QUESTIONS[0], 1))
            time.sleep(0.01)
    assert ending.is_alive()  # it waits for what runs
    go.set()
    ending.join(PATIENCE_S)
    assert played == ["t0"]
    assert received(rollouts, 1) == ["t0"]
    assert rollouts.receive(0.0) == []

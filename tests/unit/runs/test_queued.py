"""Requests are sent again until they are answered, and each answer is brought once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kbqa.runs.inbox import Inbox
from kbqa.runs.queued import QueuedRollouts, QueuedSource
from tests.unit.runs.exchange import QUESTIONS, Clock, Queue, make_reply, make_request


@pytest.fixture
def spent() -> set[str]:
    return set()


@pytest.fixture
def rollouts(queue: Queue, inbox: Inbox, clock: Clock, spent: set[str]) -> QueuedRollouts:
    return QueuedRollouts("t", queue, inbox, spent=spent.__contains__, deadline_s=10.0, clock=clock)


def post(rollouts: QueuedRollouts, *ids: str) -> None:
    for request_id in ids:
        rollouts.ask(make_request(request_id, QUESTIONS[0], 1))


def test_an_answer_is_brought_once_and_stays_until_it_is_spent(
    rollouts: QueuedRollouts, queue: Queue, inbox: Inbox, spent: set[str]
) -> None:
    post(rollouts, "t1")
    assert queue.sent[0].sent_at == 1000.0
    assert queue.sent[0].expires_at == 1010.0
    assert rollouts.receive(0) == []
    inbox.accept(make_reply("t1", "a"))
    assert [reply.request_id for reply in rollouts.receive(0)] == ["t1"]
    assert rollouts.receive(0) == []
    rollouts.release()()
    assert inbox.ids() == ["t1"]
    spent.add("t1")
    rollouts.release()()
    assert inbox.ids() == []


def test_an_unanswered_request_is_sent_again_ever_more_patiently(
    rollouts: QueuedRollouts, queue: Queue, clock: Clock
) -> None:
    post(rollouts, "t1")
    sent = []
    for second in range(1, 111):
        clock.now = 1000.0 + second
        queue.sent.clear()
        rollouts.receive(0)
        sent.extend((second, request.deadline_s) for request in queue.sent)
    assert sent == [(10, 20.0), (30, 40.0), (70, 40.0), (110, 40.0)]
    assert rollouts.counters["resent"] == 4


def test_a_late_second_answer_is_removed_and_counted(
    rollouts: QueuedRollouts, inbox: Inbox, spent: set[str]
) -> None:
    post(rollouts, "t1")
    inbox.accept(make_reply("t1", "a"))
    rollouts.receive(0)
    spent.add("t1")
    rollouts.release()()
    inbox.accept(make_reply("t1", "b"))
    assert rollouts.receive(0) == []
    assert (inbox.ids(), rollouts.counters["duplicates"]) == ([], 1)


def test_an_answer_from_before_a_restart_is_not_asked_for_again(
    rollouts: QueuedRollouts, queue: Queue, inbox: Inbox
) -> None:
    inbox.accept(make_reply("t7", "a"))
    assert rollouts.receive(0) == []  # nobody has asked for it yet: it stays
    post(rollouts, "t7")
    assert [reply.request_id for reply in rollouts.receive(0)] == ["t7"]
    assert queue.sent == []


def test_other_kinds_are_left_alone(rollouts: QueuedRollouts, inbox: Inbox) -> None:
    inbox.accept(make_reply("e-1", "a"))
    assert rollouts.receive(0) == []
    assert inbox.ids() == ["e-1"]


def test_a_damaged_answer_is_asked_for_again(
    rollouts: QueuedRollouts, queue: Queue, inbox, tmp_path, clock
) -> None:
    post(rollouts, "t1")
    (tmp_path / "inbox" / "t1.json").write_text("{")
    assert rollouts.receive(0) == []
    assert inbox.ids() == []
    clock.now += 10
    rollouts.receive(0)
    assert queue.take_ids() == ["t1", "t1"]


def test_while_the_broker_is_down_nothing_is_lost_and_it_is_not_pestered(
    rollouts: QueuedRollouts, queue: Queue, clock: Clock
) -> None:
    queue.down = True
    post(rollouts, "t1", "t2")
    before = queue.attempts
    for _ in range(1200):
        clock.now += 0.05
        rollouts.receive(0)
    # Pauses of 0.5 s, doubling up to 10 s, with one request tried each time.
    assert queue.attempts - before == 9
    queue.down = False
    clock.now += 10.1
    rollouts.receive(0)
    assert sorted(queue.take_ids()) == ["t1", "t2"]
    assert rollouts.counters["resent"] == 0  # it never got out before


def test_a_request_that_is_ignored_while_others_are_answered_is_given_up(
    rollouts: QueuedRollouts, inbox: Inbox, clock: Clock
) -> None:
    post(rollouts, "t0")
    for number in range(1, 20):
        assert rollouts.give_up() == []
        post(rollouts, f"t{number}")
        inbox.accept(make_reply(f"t{number}", "a"))
        rollouts.receive(0)
        clock.now += 40
        rollouts.receive(0)
        if number == 5:
            break
    assert rollouts.give_up() == ["t0"]
    assert rollouts.give_up() == []


def test_nothing_is_given_up_while_nobody_answers(rollouts: QueuedRollouts, clock: Clock) -> None:
    post(rollouts, "t0", "t1")
    for _ in range(100):
        clock.now += 40
        rollouts.receive(0)
    assert rollouts.give_up() == []


def test_a_run_that_is_done_keeps_no_answers(queue: Queue, inbox: Inbox) -> None:
    source = QueuedSource(queue, inbox)
    source.open("t", spent=lambda _: False, deadline_s=10.0)
    for name in ("t1", "e1"):
        inbox.accept(make_reply(name, "a"))
    source.close()
    assert inbox.ids() == []


class SlowInbox(Inbox):
    """One whose directory is large, or on a slow disk."""

    looks = 0

    def ids(self) -> list[str]:
        self.looks += 1
        time.sleep(0.02)
        return super().ids()


def test_looking_for_answers_takes_a_small_part_of_the_time(
    queue: Queue, clock: Clock, tmp_path: Path
) -> None:
    inbox = SlowInbox(tmp_path / "slow")
    rollouts = QueuedRollouts("t", queue, inbox, spent=lambda _: False, deadline_s=10.0, clock=clock)
    post(rollouts, "t1")
    assert rollouts.receive(1.0) == []
    assert inbox.looks <= 6
    inbox.accept(make_reply("t1", "a"))
    assert [reply.request_id for reply in rollouts.receive(1.0)] == ["t1"]

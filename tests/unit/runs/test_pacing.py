"""The trainer asks for no more than it may, takes what is fresh, and loses count of nothing.

Worked numbers: 2 questions a step, 4 in flight, at most 1 version stale.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kbqa.curricula import Deck
from kbqa.errors import RunError
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes.learning import ScheduleSection
from kbqa.runs.inbox import Inbox
from kbqa.runs.ledger import GroupOutcome
from kbqa.runs.pacing import Pacing
from kbqa.runs.queued import QueuedSource
from kbqa.tree import ScoredRollout
from kbqa.wire import FailureReason, RolloutFailure, RolloutReply, decode
from tests.unit.runs.exchange import QUESTIONS, Queue, make_reply, make_request

FOREIGN = 100  # a token that the model does not know
ENOUGH = 50  # rounds for groups that are there; on a busy machine, not each of them looks for answers


class Waiting(Exception):
    """Raised instead of waiting for groups that will not come."""


def patience(rounds: int) -> Callable[[], None]:
    left = [rounds]

    def check() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Waiting

    return check


def fault(rollout: ScoredRollout) -> str | None:
    """What the model that is trained says."""
    read = {token for member in rollout.members for token in member.trajectory.token_ids}
    return "a foreign token" if FOREIGN in read else None


def trust(_: RolloutFailure) -> None:
    """The trainer sees nothing wrong."""


@pytest.fixture
def publish(tmp_path: Path) -> Callable[[int], PolicyVersion]:
    store = PolicyStore(tmp_path / "policies")

    def publish(number: int) -> PolicyVersion:
        return store.publish(
            "r1",
            number,
            lambda directory: (directory / "config.json").write_text(str(number)) and None,
            recipe={"name": "r"},
            recipe_digest="0" * 64,
            step=number,
            metrics={},
        )

    return publish


@pytest.fixture
def make_pacing(schedule: ScheduleSection, queue: Queue, inbox: Inbox):
    def make(version: PolicyVersion) -> Pacing:
        return Pacing(
            schedule,
            Deck(QUESTIONS, seed=1),
            make_request,
            QueuedSource(queue, inbox),
            fault,
            version,
            trust,
        )

    return make


def ids(*numbers: int) -> list[str]:
    return [f"t{number:07d}" for number in numbers]


def test_a_step_takes_its_groups_in_any_order_and_asks_for_as_many(
    make_pacing, publish, queue: Queue, inbox: Inbox
) -> None:
    v1 = publish(1)
    pacing = make_pacing(v1)
    with pytest.raises(Waiting):
        pacing.collect(patience(1))
    assert queue.take_ids() == ids(0, 1, 2, 3)  # max_in_flight

    for name in ids(3, 1):
        inbox.accept(make_reply(name, v1.id))
    received = pacing.collect(patience(ENOUGH))
    assert [r.request_id for r in received] == ids(1, 3)  # in the order of asking
    assert [r.staleness for r in received] == [0, 0]

    pacing.refill()  # while the step is trained
    assert queue.take_ids() == ids(4, 5)
    pacing.close_step({ids(1)[0]: GroupOutcome.TRAINED, ids(3)[0]: GroupOutcome.NO_SPREAD})
    assert (pacing.step, pacing.ledger.in_flight) == (1, ids(0, 2, 4, 5))
    assert pacing.ledger.counts() == {"trained": 1, "no_spread": 1}


def test_answers_that_wait_count_as_in_flight_so_a_slow_trainer_never_drowns(
    make_pacing, publish, queue: Queue, inbox: Inbox
) -> None:
    v1 = publish(1)
    pacing = make_pacing(v1)
    pacing.refill()
    for name in queue.take_ids():
        inbox.accept(make_reply(name, v1.id))
    received = pacing.collect(patience(ENOUGH))
    assert len(received) == 2
    pacing.refill()
    assert queue.take_ids() == ids(4, 5)  # not 6: two groups wait for the next step
    pacing.refill()
    assert queue.take_ids() == []


def test_requests_ask_for_the_newest_version_once_it_is_published(
    make_pacing, publish, queue: Queue, inbox: Inbox
) -> None:
    pacing = make_pacing(publish(1))
    pacing.refill()
    assert {request.min_policy_version for request in queue.sent} == {1}
    for name in queue.take_ids()[:2]:
        inbox.accept(make_reply(name, publish(1).id))
    received = pacing.collect(patience(ENOUGH))
    pacing.close_step(dict.fromkeys((r.request_id for r in received), GroupOutcome.TRAINED))
    pacing.changed()
    pacing.publish(publish(2))
    pacing.refill()
    assert {request.min_policy_version for request in queue.sent} == {2}


def test_a_stale_group_is_dropped_when_it_comes_in_or_becomes_stale_while_it_waits(
    make_pacing, publish, queue: Queue, inbox: Inbox
) -> None:
    v1, v2, v3 = publish(1), publish(2), publish(3)
    pacing = make_pacing(v1)
    pacing.changed()
    pacing.publish(v2)
    pacing.refill()
    inbox.accept(make_reply(ids(0)[0], v1.id, v2.id))  # its oldest turn is 1 version old: fresh
    with pytest.raises(Waiting):
        pacing.collect(patience(1))
    assert pacing.ledger.counts() == {}

    pacing.changed()
    pacing.publish(v3)  # now it is 2 versions old
    inbox.accept(make_reply(ids(1)[0], v1.id))
    inbox.accept(make_reply(ids(2)[0], v2.id, v3.id))
    inbox.accept(make_reply(ids(3)[0], v3.id))
    received = pacing.collect(patience(ENOUGH))
    assert [(r.request_id, r.staleness) for r in received] == [(ids(2)[0], 1), (ids(3)[0], 0)]
    assert pacing.ledger.outcome(ids(0)[0]) is GroupOutcome.STALE
    assert pacing.ledger.outcome(ids(1)[0]) is GroupOutcome.STALE


def test_weights_that_are_not_published_make_groups_stale_all_the_same(
    make_pacing, publish, queue: Queue, inbox: Inbox
) -> None:
    v1, v2 = publish(1), publish(2)
    pacing = make_pacing(v1)
    pacing.refill()
    pacing.changed()
    inbox.accept(make_reply(ids(0)[0], v1.id))
    inbox.accept(make_reply(ids(1)[0], v1.id))
    assert [received.staleness for received in pacing.collect(patience(ENOUGH))] == [1, 1]
    assert {request.min_policy_version for request in queue.sent} == {1}
    pacing.changed()
    pacing.publish(v2)
    inbox.accept(make_reply(ids(2)[0], v2.id))
    inbox.accept(make_reply(ids(3)[0], v2.id))
    assert [received.staleness for received in pacing.collect(patience(ENOUGH))] == [0, 0]
    assert pacing.ledger.outcome(ids(0)[0]) is GroupOutcome.STALE


def test_groups_of_weights_that_were_undone_are_asked_for_again(
    make_pacing, publish, queue: Queue, inbox: Inbox
) -> None:
    v1, undone = publish(1), publish(9)
    pacing = make_pacing(v1)
    pacing.refill()
    asked = {request.request_id: request for request in queue.sent}
    queue.sent.clear()
    inbox.accept(make_reply(ids(0)[0], v1.id, undone.id))
    inbox.accept(make_reply(ids(1)[0], v1.id))
    with pytest.raises(Waiting):
        pacing.collect(patience(1))
    (again,) = queue.sent
    assert (again.request_id, again.question) == (ids(0)[0], asked[ids(0)[0]].question)
    assert pacing.counters["renewed"] == 1
    assert pacing.ledger.in_flight == ids(0, 1, 2, 3)
    inbox.accept(make_reply(ids(0)[0], v1.id))
    assert [received.request_id for received in pacing.collect(patience(ENOUGH))] == ids(0, 1)


def test_a_worker_that_fails_fast_costs_no_group(make_pacing, publish, queue: Queue, inbox: Inbox) -> None:
    v1 = publish(1)
    pacing = make_pacing(v1)
    reasons = (FailureReason.VERSION_REFUSED, FailureReason.POLICY_UNAVAILABLE, FailureReason.CLOCK_OFF)
    for reason in reasons:
        pacing.refill()
        for name in ids(0, 1, 2, 3):
            inbox.accept(make_reply(name, failure=reason))
        with pytest.raises(Waiting):
            pacing.collect(patience(1))
    assert pacing.ledger.in_flight == ids(0, 1, 2, 3)  # none was dropped, no other was asked for
    assert pacing.counters["renewed"] == 12
    inbox.accept(make_reply(ids(0)[0], v1.id))
    inbox.accept(make_reply(ids(1)[0], v1.id))
    assert [received.request_id for received in pacing.collect(patience(ENOUGH))] == ids(0, 1)


def test_a_group_that_the_model_cannot_learn_from_is_asked_for_again(
    make_pacing, publish, queue: Queue, inbox: Inbox, caplog
) -> None:
    v1 = publish(1)
    pacing = make_pacing(v1)
    pacing.refill()
    foreign = make_reply(ids(0)[0], v1.id).model_dump_json().replace("[0,1]", f"[0,{FOREIGN}]")
    inbox.accept(decode(RolloutReply, foreign))
    inbox.accept(make_reply(ids(1)[0], v1.id))
    with pytest.raises(Waiting):
        pacing.collect(patience(1))
    assert "a foreign token: check that worker w has" in caplog.records[-1].detail
    assert inbox.ids() == ids(1)  # else the next process would read it again
    assert pacing.counters["renewed"] == 1
    inbox.accept(make_reply(ids(0)[0], v1.id))
    assert [received.request_id for received in pacing.collect(patience(ENOUGH))] == ids(0, 1)


def test_a_group_that_fails_by_itself_is_dropped_and_many_of_them_end_the_run(
    make_pacing, publish, queue: Queue, inbox: Inbox
) -> None:
    pacing = make_pacing(publish(1))

    def fail(*numbers: int) -> None:
        for worker in ("a", "b", "c"):
            for name in ids(*numbers):
                inbox.accept(make_reply(name, failure=FailureReason.INTERNAL, worker=worker))
            with pytest.raises(Waiting):
                pacing.collect(patience(1))

    pacing.refill()
    fail(0, 1, 2, 3)
    assert pacing.ledger.counts() == {"failed": 4}
    with pytest.raises(RunError, match="6 rollouts failed in a row .internal: why"):
        fail(4, 5, 6)


def test_after_a_restore_every_group_still_occurs_once(
    make_pacing, publish, queue: Queue, inbox: Inbox, tmp_path: Path
) -> None:
    v1, v2 = publish(1), publish(2)
    pacing = make_pacing(v1)
    pacing.refill()
    for name in ids(0, 1):
        inbox.accept(make_reply(name, v1.id))
    received = pacing.collect(patience(ENOUGH))
    pacing.close_step(dict.fromkeys((r.request_id for r in received), GroupOutcome.TRAINED))
    pacing.changed()
    pacing.publish(v2)
    saved = pacing.to_json()  # in flight: 2, 3
    pacing.release()()
    assert inbox.ids() == []

    # What happens next is lost with the process: 4 and 5 are asked for, 2 and 3 trained into v3.
    pacing.refill()
    v3 = publish(3)
    inbox.accept(make_reply(ids(2)[0], v2.id))
    inbox.accept(make_reply(ids(4)[0], v3.id))  # written by weights that are undone
    queue.sent.clear()

    again = make_pacing(v1)
    v4 = publish(4)  # v2's weights, published again
    again.restore(saved, v4)
    assert queue.take_ids() == ids(3)  # 2 was answered before the restart
    again.refill()
    assert queue.take_ids() == ids(5)  # 4 too
    inbox.accept(make_reply(ids(3)[0], v4.id))
    received = again.collect(patience(ENOUGH))
    assert [(r.request_id, r.staleness) for r in received] == [(ids(2)[0], 0), (ids(3)[0], 0)]
    assert queue.take_ids() == ids(4)  # what the undone weights wrote is of no use
    again.close_step(dict.fromkeys((r.request_id for r in received), GroupOutcome.TRAINED))
    again.end()
    assert {i: again.ledger.outcome(i) for i in ids(0, 1, 2, 3, 4)} == {
        **dict.fromkeys(ids(0, 1, 2, 3), GroupOutcome.TRAINED),
        ids(4)[0]: GroupOutcome.RUN_ENDED,
    }
    assert again.ledger.in_flight == []


def test_the_same_position_is_the_same_question_after_a_restart(make_pacing, publish, queue: Queue) -> None:
    make_pacing(publish(1)).refill()
    first = {request.request_id: request.question for request in queue.sent}
    queue.sent.clear()
    make_pacing(publish(1)).refill()
    assert {request.request_id: request.question for request in queue.sent} == first


def test_the_end_drops_what_is_in_flight(make_pacing, publish) -> None:
    pacing = make_pacing(publish(1))
    pacing.refill()
    pacing.end()
    assert pacing.ledger.counts() == {"run_ended": 4}
    assert pacing.ledger.in_flight == []


def test_a_group_that_nobody_answers_is_settled_and_the_step_is_made_of_others(
    schedule: ScheduleSection, publish, caplog
) -> None:
    v1 = publish(1)

    class Forgetful:
        """Never answers what it is asked first."""

        def __init__(self) -> None:
            self.asked: list[str] = []
            self.lost: list[str] = []

        def open(self, kind, *, spent, deadline_s):
            return self

        def ask(self, request) -> None:
            first = not self.asked and not self.lost
            (self.lost if first else self.asked).append(request.request_id)

        def receive(self, wait_s):
            replies = [make_reply(name, v1.id) for name in self.asked]
            self.asked = []
            return replies

        def give_up(self):
            lost, self.lost = self.lost, []
            return lost

    pacing = Pacing(schedule, Deck(QUESTIONS, seed=1), make_request, Forgetful(), fault, v1, trust)
    assert [r.request_id for r in pacing.collect(patience(ENOUGH))] == ids(1, 2)
    assert pacing.ledger.outcome(ids(0)[0]) is GroupOutcome.UNANSWERED
    assert "a request was never answered" in caplog.messages

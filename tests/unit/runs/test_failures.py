"""One bad worker ends no run, and a cause that nobody can get around ends it at once or after minutes."""

from __future__ import annotations

import pytest

from kbqa.errors import (
    NoPolicyError,
    PolicyIntegrityError,
    PolicyMismatchError,
    PolicyStoreUnavailableError,
    PolicyUnavailableError,
    RunError,
)
from kbqa.runs.failures import SCOPES, Triage, reason_of
from kbqa.wire import FailureReason
from tests.unit.runs.exchange import Clock, make_reply


def trust(_) -> None:
    """The trainer sees nothing wrong."""


def fail(triage: Triage, reason: FailureReason, request_id: str = "t1") -> float | None:
    return triage.failed(make_reply(request_id, failure=reason))


def test_every_reason_has_a_scope():
    assert SCOPES.keys() == set(FailureReason)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PolicyStoreUnavailableError("its disk is away"), FailureReason.POLICY_UNAVAILABLE),
        (PolicyUnavailableError("no vLLM answers"), FailureReason.POLICY_UNAVAILABLE),
        (PolicyIntegrityError("damaged"), FailureReason.VERSION_REFUSED),
        (PolicyMismatchError("off by 0.011"), FailureReason.VERSION_REFUSED),
        (NoPolicyError("not published"), FailureReason.NO_POLICY),
        (OSError("a full disk"), FailureReason.INTERNAL),
    ],
)
def test_only_what_is_wrong_with_a_version_blames_it(error: Exception, reason: FailureReason):
    assert reason_of(error) is reason


def test_what_the_trainer_sees_too_ends_the_run_at_once(clock: Clock):
    def look(failure) -> None:
        raise RunError(f"seen: {failure.reason}")

    with pytest.raises(RunError, match="seen: version_refused"):
        fail(Triage(look, 6, 10.0, clock), FailureReason.VERSION_REFUSED)


def test_it_looks_once_a_minute_for_each_cause(clock: Clock):
    looks = []
    triage = Triage(lambda failure: looks.append(failure.reason), 6, 10.0, clock)
    for _ in range(100):
        fail(triage, FailureReason.VERSION_REFUSED)
        fail(triage, FailureReason.GRAPH_CHANGED)
        fail(triage, FailureReason.POLICY_UNAVAILABLE)
        clock.now += 1
    assert looks == [FailureReason.VERSION_REFUSED, FailureReason.GRAPH_CHANGED] * 2


def test_a_version_that_nobody_can_load_for_minutes_ends_the_run(clock: Clock):
    triage = Triage(trust, 6, 10.0, clock)
    fail(triage, FailureReason.VERSION_REFUSED)
    clock.now += 299
    assert fail(triage, FailureReason.VERSION_REFUSED) is not None
    clock.now += 2
    with pytest.raises(RunError, match="all rollouts have failed for 301 s .version_refused: why"):
        fail(triage, FailureReason.VERSION_REFUSED)


def test_another_worker_that_answers_now_and_then_keeps_the_run_alive(clock: Clock):
    triage = Triage(trust, 6, 10.0, clock)
    for _ in range(20):
        fail(triage, FailureReason.VERSION_REFUSED)
        clock.now += 200
        triage.answered(make_reply("t2", "v1"))


def test_an_outage_is_waited_for_however_long_it_takes(clock: Clock):
    triage = Triage(trust, 6, 10.0, clock)
    for _ in range(1000):
        assert fail(triage, FailureReason.POLICY_UNAVAILABLE) <= 60
        clock.now += 60


def internal(triage: Triage, worker: str) -> float | None:
    return triage.failed(make_reply("t1", failure=FailureReason.INTERNAL, worker=worker))


def test_a_request_that_fails_at_three_workers_is_given_up(clock: Clock):
    triage = Triage(trust, 6, 10.0, clock)
    assert None not in (internal(triage, "a"), internal(triage, "b"))
    assert internal(triage, "c") is None


def test_a_worker_that_fails_at_everything_gives_no_request_up_at_once(clock: Clock):
    triage = Triage(trust, 1, 10.0, clock)
    for _ in range(119):
        assert internal(triage, "w") is not None
        triage.answered(make_reply("t2", "v1", worker="another"))
        clock.now += 1
    clock.now += 1
    with pytest.raises(RunError, match="1 rollouts failed in a row .internal: why"):  # but in two minutes
        internal(triage, "w")


def test_a_request_that_fails_where_others_are_answered_is_given_up(clock: Clock):
    triage = Triage(trust, 6, 10.0, clock)
    for _ in range(2):
        assert internal(triage, "w") is not None
        triage.answered(make_reply("t2", "v1", worker="w"))
    assert internal(triage, "w") is None


def test_an_hour_without_the_judge_is_waited_for(clock: Clock):
    triage = Triage(trust, 1, 10.0, clock)
    for _ in range(60):
        for request_id in ("t1", "t2", "t3"):
            assert fail(triage, FailureReason.JUDGE_UNAVAILABLE, request_id) is not None
        clock.now += 60


def test_one_answer_that_the_judge_cannot_judge_is_given_up(clock: Clock):
    triage = Triage(trust, 6, 10.0, clock)
    for _ in range(2):
        assert fail(triage, FailureReason.JUDGE_UNAVAILABLE) is not None
        triage.answered(make_reply("t2", "v1"))
    assert fail(triage, FailureReason.JUDGE_UNAVAILABLE) is None

"""A worker that fails leaves requests to others, for longer and longer, and says so."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from kbqa.telemetry.metrics import Metrics
from kbqa.wire import FailureReason, RolloutFailure
from services.rollout_worker.standing import Standing


class Worker:
    def __init__(self) -> None:
        self.now, self.pauses, self.registry = 0.0, [], CollectorRegistry()
        self.standing = Standing(Metrics(self.registry), self.pauses.append, lambda: self.now)

    def fail(self, reason: FailureReason) -> None:
        self.standing.failed(RolloutFailure(reason=reason, detail="why"))

    @property
    def metric(self) -> float | None:
        return self.registry.get_sample_value("kbqa_rollout_standing_back")


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_version_that_cannot_be_loaded_makes_it_stand_back_and_say_so(worker: Worker) -> None:
    assert (worker.standing.unready(), worker.metric) == (None, 0.0)
    worker.fail(FailureReason.VERSION_REFUSED)
    assert worker.pauses == [5.0]
    assert worker.standing.unready() == "takes no requests for another 5 s (version_refused: why)"
    assert worker.metric == 1.0
    worker.now = 5.1
    assert (worker.standing.unready(), worker.metric) == (None, 0.0)


def test_pauses_double_up_to_two_minutes_until_it_answers_again(worker: Worker) -> None:
    for _ in range(8):
        worker.fail(FailureReason.CLOCK_OFF)
        worker.now += 1000
    assert worker.pauses == [5, 10, 20, 40, 80, 120, 120, 120]
    worker.standing.answered()
    worker.fail(FailureReason.CLOCK_OFF)
    assert worker.pauses[-1] == 5


def test_requests_in_progress_that_fail_too_do_not_prolong_the_pause(worker: Worker) -> None:
    for _ in range(32):
        worker.fail(FailureReason.POLICY_UNAVAILABLE)
    assert worker.pauses == [5.0]


def test_failures_of_single_requests_count_only_in_a_row(worker: Worker) -> None:
    for _ in range(5):
        worker.fail(FailureReason.INTERNAL)
        worker.fail(FailureReason.INTERNAL)
        worker.standing.answered()
    assert worker.pauses == []
    for _ in range(3):
        worker.fail(FailureReason.INTERNAL)
    assert worker.pauses == [5.0]

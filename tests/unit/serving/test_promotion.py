"""A promotion that goes wrong does no harm: the last good version answers, and questions only wait."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from kbqa.environment import Budget
from kbqa.errors import (
    NoPolicyError,
    PolicyChangingError,
    PolicyMismatchError,
    PolicyUnavailableError,
)
from kbqa.protocols.kg_r1 import KgR1
from kbqa.serving.players import Players
from kbqa.serving.policies import PoliciesInTurn, ServedPolicy
from kbqa.serving.promotion import FollowedPolicies
from kbqa.serving.trial import Bounds, Outcome, Trial

V1, V2, V3 = "v000001-aaaaaaaa", "v000002-bbbbbbbb", "v000003-cccccccc"


class Gateway:
    """An engine that holds one version, as a vLLM server holds whole weights."""

    def __init__(self, *, trial: Trial | None = None, exclusive: bool = True) -> None:
        self.wanted, self.holds, self.loads, self.rollbacks = V1, "", [], 0
        self.turns: list[list[str]] = []  # what was loaded in each turn
        self.failing: dict[str, Exception] = {}
        self.now = 0.0
        self.policies = FollowedPolicies(
            lambda: SimpleNamespace(id=self.wanted),
            self._load,
            poll_s=0.01,
            exclusive=lambda _: exclusive,
            turn=self._turn,
            trial=trial,
            rolled_back=self._roll_back,
            clock=lambda: self.now,
        )
        self.policies.refresh()

    def _load(self, version) -> ServedPolicy:
        self.loads.append(version.id)
        self.holds = "?"  # the weights are overwritten before they are verified
        if version.id in self.failing:
            raise self.failing[version.id]
        self.holds = version.id
        return ServedPolicy(
            run="run",
            version=version.id,
            recipe="r",
            players=Players(None, None, KgR1(), Budget(1, 1, 1, 1)),
            close=lambda: None,
            alive=lambda: self.holds == version.id,
        )

    @contextmanager
    def _turn(self, stopping: threading.Event):
        before = len(self.loads)
        yield
        self.turns.append(self.loads[before:])

    def _roll_back(self) -> None:
        self.rollbacks += 1

    def promote(self, version: str) -> None:
        self.wanted = version
        self.policies.refresh()

    def follow_for_hours(self) -> None:
        for _ in range(2000):
            self.now += 10
            self.policies.refresh()

    def serving(self) -> str:
        lease = self.policies.lease()
        lease.release()
        return lease.served.version

    def ask(self, outcome: Outcome, times: int = 1) -> str:
        for _ in range(times):
            lease = self.policies.lease()
            lease.count(outcome)
            lease.release()
        return lease.served.version


def test_after_a_promotion_that_fails_its_probe_the_last_good_version_is_loaded_again():
    gateway = Gateway()
    gateway.failing[V2] = PolicyMismatchError("off by 0.011")
    gateway.promote(V2)
    assert gateway.loads == [V1, V2, V1]
    assert gateway.serving() == V1
    assert gateway.policies.unready() is None


def test_a_gateway_keeps_its_turn_until_it_answers_again():
    gateway = Gateway()
    gateway.promote(V2)
    gateway.failing[V3] = PolicyMismatchError("off by 0.011")
    gateway.promote(V3)
    gateway.policies.refresh()
    assert gateway.turns == [[V2], [V3, V2]]
    beside = Gateway(exclusive=False)
    beside.promote(V2)
    assert (beside.serving(), beside.turns) == (V2, [])


def test_a_version_that_cannot_be_loaded_is_not_tried_for_ever():
    gateway = Gateway()
    gateway.failing[V2] = PolicyMismatchError("off by 0.011")
    gateway.promote(V2)
    gateway.follow_for_hours()
    assert gateway.loads.count(V2) == 3
    gateway.promote(V3)
    assert gateway.serving() == V3
    gateway.promote(V2)  # somebody has looked into it
    assert gateway.loads.count(V2) == 4


def test_an_engine_that_is_away_is_tried_again_until_it_is_back():
    gateway = Gateway()
    gateway.holds, gateway.failing[V1] = "?", PolicyUnavailableError("no vLLM answers")
    for _ in range(1000):
        gateway.now += 10
        gateway.policies.refresh()
    assert 300 < len(gateway.loads) < 400
    del gateway.failing[V1]
    gateway.now += 31
    gateway.policies.refresh()
    assert gateway.policies.unready() is None


def test_a_version_that_takes_the_engine_away_is_not_tried_for_ever():
    """As a server does that refuses its weights, and serves the version before again."""
    gateway = Gateway()
    gateway.failing[V2] = PolicyUnavailableError("vLLM answers with 500")
    gateway.promote(V2)
    gateway.follow_for_hours()
    assert gateway.loads.count(V2) == 3
    assert gateway.serving() == V1


def test_questions_in_progress_finish_and_new_ones_wait_while_the_engine_changes():
    gateway = Gateway()
    running = gateway.policies.lease()
    gateway.wanted = V2
    change = threading.Thread(target=gateway.policies.refresh)
    change.start()
    with pytest.raises(PolicyChangingError):  # noqa: PT012 (it has to begin first)
        while True:
            gateway.policies.lease().release()
            time.sleep(0.01)
    assert gateway.holds == V1  # what runs is not disturbed
    assert gateway.policies.unready() is None
    with pytest.raises(PolicyChangingError):  # and no stand-in answers instead
        PoliciesInTurn([gateway.policies, SimpleNamespace(unready=lambda: None)]).lease()
    running.release()
    change.join(30)
    assert gateway.serving() == V2


def test_if_no_version_can_be_loaded_the_reason_is_told():
    gateway = Gateway()
    gateway.failing = dict.fromkeys((V1, V2), PolicyUnavailableError("no vLLM answers"))
    gateway.promote(V2)
    with pytest.raises(NoPolicyError, match="no vLLM answers"):
        gateway.policies.lease()


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNANSWERED])
def test_a_version_that_answers_far_fewer_questions_is_rolled_back_for_good(outcome, exclusive):
    gateway = Gateway(trial=Trial(Bounds(10, 0.1, 0.3)), exclusive=exclusive)
    gateway.ask(Outcome.ANSWERED, 10)
    gateway.promote(V2)
    assert gateway.ask(outcome, 9) == V2
    gateway.policies.refresh()
    assert gateway.rollbacks == 0  # too few
    gateway.ask(outcome)
    gateway.policies.refresh()
    assert gateway.ask(Outcome.ANSWERED) == V1
    assert gateway.rollbacks == 1
    for _ in range(100):
        gateway.now += 3600
        gateway.policies.refresh()
    assert gateway.ask(Outcome.ANSWERED) == V1
    gateway.promote(V3)
    assert gateway.ask(Outcome.ANSWERED) == V3


def test_a_version_that_answers_as_often_stays():
    gateway = Gateway(trial=Trial(Bounds(10, 0.1, 0.3)))
    for version in (V1, V2):
        gateway.promote(version)
        gateway.ask(Outcome.ANSWERED, 8)
        gateway.ask(Outcome.FAILED, 2)
    gateway.policies.refresh()
    assert gateway.ask(Outcome.ANSWERED) == V2


def test_without_questions_of_the_version_before_there_is_no_verdict():
    gateway = Gateway(trial=Trial(Bounds(10, 0.1, 0.3)))
    gateway.promote(V2)
    gateway.ask(Outcome.FAILED, 100)
    gateway.policies.refresh()
    assert gateway.serving() == V2

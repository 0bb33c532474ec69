"""A small fleet for a few seconds, and how its costs become those of a large one."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.fleet import report
from benchmarks.fleet.measurements import Measured, Peaks, Plan, Step, Totals
from benchmarks.fleet.shares import Share, Target, costs
from benchmarks.fleet.simulation import GATEWAYS_REDIS, simulate


def measured(seconds: float, redis_s: float, groups: int = 0, questions: int = 0) -> Measured:
    totals = Totals(
        seconds,
        cpu_s={"redis": redis_s},
        commands={},
        network={},
        groups=groups,
        versions=0,
        operations={},
        count_bytes=0,
    )
    return Measured(Step(seconds), totals, Peaks(), Counter(answered=questions))


def redis(totals: Totals) -> float:
    return totals.cpu_s["redis"]


def test_costs_are_what_a_load_adds_to_waiting_and_add_up():
    steps = [measured(10, 1.0), measured(10, 3.0, groups=20), measured(20, 4.0, questions=100)]
    found = costs(steps, 16, redis)
    assert (found.base, found.request, found.group, found.question) == pytest.approx((0.1, 0.0, 0.1, 0.02))
    target = Target(workers=100, questions=10.0, concurrency=1, group_s=50.0)
    assert target.groups == 2.0
    assert found.of(target, scale=2.0) == pytest.approx(0.2 + 0.2 + 0.2)


def test_what_two_rates_of_training_have_in_common_is_the_cost_of_requests_that_wait():
    # 0.5 s of 10 s for 100 requests, and 0.05 s for each group
    steps = [measured(10, 1.0), measured(10, 2.5, groups=20), measured(10, 3.5, groups=40)]
    found = costs(steps, 100, redis)
    assert (found.request, found.group) == pytest.approx((0.0005, 0.05))
    target = Target(workers=2, questions=0.0, concurrency=100, group_s=100.0)
    assert found.of(target, scale=1.0) == pytest.approx(0.1 + 200 * 0.0005 + 2 * 0.05)


def test_rates_that_fit_no_line_upwards_share_all_of_the_cost_among_groups():
    steps = [measured(10, 1.0), measured(10, 3.0, groups=10), measured(10, 2.0, groups=20)]
    found = costs(steps, 100, redis)
    assert (found.request, found.group) == pytest.approx((0.0, 0.1))


def test_a_load_that_adds_nothing_costs_nothing():
    found = costs([measured(10, 1.0), measured(10, 0.5, groups=5)], 16, redis)
    assert (found.group, found.question) == (0.0, 0.0)


def test_a_row_says_at_which_fleet_its_component_breaks():
    line = Share("Redis", limit=1.0, use=0.25, unit="core").line(Target())
    assert "25.0%" in line
    assert "400 workers, 4,000 questions/s" in line


def test_a_small_fleet_trains_and_answers(monkeypatch):
    monkeypatch.setattr("benchmarks.fleet.simulation._SETTLE_S", 0.5)
    steps = (
        Step(2),
        Step(3, questions=4),
        Step(2, at_a_time=4),
        Step(6, turn_s=0.2),
        Step(2, booked=50),
        Step(2, replies=4),
    )
    outcome = simulate(Plan(workers=3, gateways=2, concurrency=2, in_flight=12, per_step=2, steps=steps))
    idle, asked, alone, training, booked, sent = outcome.steps
    assert not idle.totals.groups
    assert set(asked.ends) == set(alone.ends) == {"answered"}
    assert asked.questions == 12
    assert training.totals.groups >= 2
    assert sent.totals.groups == 8
    assert booked.ends == {"booked": booked.questions}
    assert 80 <= booked.questions <= 100
    assert booked.totals.commands[GATEWAYS_REDIS] > 25 * booked.questions
    assert training.totals.versions >= 1
    assert abs(training.totals.operations["publish"] - training.totals.versions) <= 1  # one may be under way
    assert all(seconds >= 0 for step in outcome.steps for seconds in step.totals.cpu_s.values())
    assert outcome.reply_bytes > 50_000
    assert 0 < training.peaks.files < 100
    assert sum("questions/s" in line for line in report(outcome, outcome, Target())) > 2

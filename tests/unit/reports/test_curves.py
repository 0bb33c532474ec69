"""Curves of runs, and their mean, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from kbqa.reports.curves import CHARTS, curve_of, mean_curve, thinned

VALIDATION, REWARD = CHARTS[0], CHARTS[1]


def step(step, seconds, phase="rl", kind="step", **values):
    return {"kind": kind, "phase": phase, "step": step, "seconds": seconds, **values}


def test_a_curve_is_that_of_the_last_phase_and_of_its_split():
    records = [
        step(1, 5.0, "cold_start", reward=9.0),
        step(1, 10.0, reward=1.0),
        step(2, 14.0, reward=2.0),
        step(3, 15.0, reward=math.nan),
        step(3, 16.0),
        step(2, 15.0, kind="evaluation", split="validation", f1=0.5),
        step(2, 16.0, kind="evaluation", split="test", f1=0.9),
    ]
    assert curve_of(records, REWARD, "step") == [(1, 1.0), (2, 2.0)]
    assert curve_of(records, REWARD, "seconds") == [(10, 1.0), (14, 2.0)]
    assert curve_of(records, VALIDATION, "step") == [(2, 0.5)]
    assert curve_of(records[:1], REWARD, "step") == [(1, 9.0)]


def test_the_mean_is_over_steps_that_all_curves_have_reached():
    one, other = [(1.0, 0.0), (2.0, 2.0), (3.0, 4.0)], [(1.0, 2.0), (3.0, 4.0), (9.0, 9.0)]
    points, (low, high) = mean_curve([one, other], "step")
    assert points == [(1, 1), (2, 2.5), (3, 4)]
    # Two values 2 apart deviate by sqrt(2): 12.7062 * sqrt(2) / sqrt(2).
    assert low[0][1] == pytest.approx(1 - 12.7062)
    assert high[0][1] == pytest.approx(1 + 12.7062)
    assert (low[2], high[2]) == ((3, 4), (3, 4))


def test_over_time_curves_are_read_between_their_records():
    points, _ = mean_curve([[(0.0, 0.0), (10.0, 10.0)], [(2.0, 0.0), (8.0, 0.0)]], "seconds")
    assert points[0] == (2, 1)
    assert points[-1] == (8, 4)
    assert len(points) == 100


def test_curves_that_share_no_time_have_no_mean():
    assert mean_curve([[(0.0, 1.0), (1.0, 1.0)], [(5.0, 1.0), (6.0, 1.0)]], "seconds") == ([], ([], []))


def test_long_curves_are_thinned_without_a_loss_of_their_mean():
    points = [(float(x), float(x)) for x in range(1000)]
    found = thinned(points)
    assert len(found) == 200
    assert found[0] == (4, 2)
    assert found[-1] == (999, 997)

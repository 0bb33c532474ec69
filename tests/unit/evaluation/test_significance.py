"""Intervals that cover as often as they say, and McNemar's test against published values."""

from __future__ import annotations

import numpy as np
import pytest

from kbqa.evaluation.significance import bootstrap, mcnemar, student, t_quantile


def test_mcnemar_as_learning_to_refine_reports_it():
    test = mcnemar(354, 130)
    assert test.statistic == pytest.approx(102.75, abs=0.005)  # section 5.1
    assert test.p < 1e-20


def test_mcnemar_as_a_textbook_has_it():
    # Agresti, Categorical Data Analysis (1990), table 10.1, with the continuity correction.
    test = mcnemar(150, 86)
    assert test.statistic == pytest.approx((64 - 1) ** 2 / 236)
    assert test.p == pytest.approx(4.115e-5, rel=1e-3)


@pytest.mark.parametrize(
    ("ours", "theirs", "p"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (0, 5, 2 / 32),
        (1, 9, 2 * (1 + 10) / 1024),
        (9, 1, 2 * (1 + 10) / 1024),
        (3, 0, 0.25),
    ],
)
def test_few_discordant_pairs_are_tested_exactly(ours, theirs, p):
    test = mcnemar(ours, theirs)
    assert (test.statistic, test.p) == (None, pytest.approx(p))


def test_the_exact_test_and_the_approximation_meet():
    assert mcnemar(16, 8).p == pytest.approx(mcnemar(17, 8).p, abs=0.05)
    assert mcnemar(13, 12).p == pytest.approx(1.0, abs=0.01)
    assert mcnemar(20, 20).p == 1.0


def test_an_interval_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(7)
    covered = 0
    for trial in range(300):
        interval = bootstrap(rng.random(150) < 0.7, seed=trial, resamples=500)
        covered += interval.low <= 0.7 <= interval.high
    assert 0.90 <= covered / 300 <= 0.985


def test_an_interval_of_a_mean_is_as_wide_as_theory_says():
    values = [0.0] * 400 + [1.0] * 600
    low, high = bootstrap(values)
    half = 1.96 * (0.6 * 0.4 / 1000) ** 0.5
    assert (low, high) == pytest.approx((0.6 - half, 0.6 + half), abs=0.004)


def test_a_ratio_is_resampled_by_question():
    # Each question brings its queries: nothing varies here, whatever is drawn.
    assert bootstrap([1, 2, 3], [2, 4, 6]) == (0.5, 0.5)
    assert bootstrap([3.0, 0.0], [4.0, 0.0]) == (0.75, 0.75)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(1).random(50)
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)
    assert bootstrap(values, seed=3) != bootstrap(values, seed=4)


def test_nothing_has_no_interval():
    assert bootstrap([]) is None
    assert bootstrap([0.0, 0.0], [0.0, 0.0]) is None


def test_groups_of_one_question_give_the_interval_of_the_questions():
    rng = np.random.default_rng(1)
    values, weights = rng.random(60), rng.integers(0, 4, 60)
    apart = [f"q{n}" for n in range(60)]
    assert bootstrap(values, groups=apart) == bootstrap(values)
    assert bootstrap(values, weights, groups=apart) == bootstrap(values, weights)


@pytest.mark.parametrize("times", [2, 4, 8])
def test_questions_that_are_asked_again_make_nothing_surer(times):
    values = [0.0] * 20 + [1.0] * 30
    groups = [*range(50)] * times
    assert bootstrap(values * times, groups=groups) == bootstrap(values)
    low, high = bootstrap(values * times)
    assert high - low < 0.75 * (bootstrap(values).high - bootstrap(values).low)


def test_an_interval_over_groups_is_as_wide_as_theory_says():
    # 100 groups of 4, all of a group alike: the deviation of 100 questions, not of 400.
    values, groups = [0.0] * 160 + [1.0] * 240, [n // 4 for n in range(400)]
    half = 1.96 * (0.6 * 0.4 / 100) ** 0.5
    assert bootstrap(values, groups=groups) == pytest.approx((0.6 - half, 0.6 + half), abs=0.011)


def test_a_group_counts_by_its_questions():
    # Drawn twice of two groups: the first alone (3 of 3), both (3 of 4, however often), the second alone.
    low, high = bootstrap([1, 1, 1, 0], groups=["a", "a", "a", "b"])
    assert (low, high) == (0.0, 1.0)
    assert bootstrap([1, 0, 1, 0], groups=["a", "a", "b", "b"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (10, 2.228), (11, 2.201), (30, 2.042), (1000, 1.962)]
)
def test_the_quantiles_are_those_of_the_tables(freedom, quantile):
    assert t_quantile(freedom) == pytest.approx(quantile, abs=0.001)


def test_an_interval_over_seeds_is_students():
    # Mean 0.5, deviation 0.1 of three: 4.3027 * 0.1 / sqrt(3).
    assert student([0.4, 0.5, 0.6]) == pytest.approx((0.5 - 0.2484, 0.5 + 0.2484), abs=0.0001)
    assert student([0.4]) is None

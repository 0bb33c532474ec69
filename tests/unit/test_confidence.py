"""Calibrated confidence: what the fit recovers, its bounds, the error, and the curve of coverage."""

import math
import random

import pytest

from kbqa.confidence import (
    Calibration,
    Choices,
    Scaling,
    SearchCalibration,
    calibration_error,
    choices_of,
    is_withheld,
)
from kbqa.trajectory import DECLINED, Search, Status, Trajectory, Turn


def drawn(intercept, slope, count, seed=1):
    """Choices, and answers that are right with the probability that the log-odds of the least likely say."""
    rng = random.Random(seed)
    odds = [rng.uniform(-5, 6) for _ in range(count)]
    right = [rng.random() < 1 / (1 + math.exp(-intercept - slope * one)) for one in odds]
    return [Choices((-0.001, -math.log1p(math.exp(-one)))) for one in odds], right


def chosen(*log_likelihoods):
    return Choices(log_likelihoods)


def test_the_fit_recovers_what_the_answers_were_drawn_from():
    found = Calibration.fit(*drawn(-0.5, 0.6, 20_000))
    assert found.intercept == pytest.approx(-0.5, abs=0.1)
    assert found.slope == pytest.approx(0.6, abs=0.1)
    assert found.questions == 20_000
    scores, right = drawn(-0.5, 0.6, 5_000, seed=2)
    assert calibration_error([found.confidence(score) for score in scores], right) < 0.02


@pytest.mark.parametrize(("right", "expected"), [(True, 31 / 32), (False, 1 / 32)])
def test_answers_that_are_all_alike_leave_a_finite_confidence(right, expected):
    """(N+ + 1) / (N+ + 2) of 30 right answers, 1 / (N- + 2) of 30 wrong ones (Platt 1999)."""
    found = Calibration.fit([chosen(-0.5)] * 30, [right] * 30)
    assert found.confidence(chosen(-0.5)) == pytest.approx(expected, abs=1e-3)


def test_answers_that_a_score_separates_leave_a_finite_slope():
    found = Calibration.fit([chosen(-n / 10) for n in range(40)], [n < 20 for n in range(40)])
    assert 0 < found.slope < 100
    assert found.confidence(chosen(-0.01)) > 0.9 > 0.1 > found.confidence(chosen(-4.0))


def test_a_score_that_points_the_wrong_way_says_nothing():
    found = Calibration.fit([chosen(-n / 10) for n in range(40)], [n >= 20 for n in range(40)])
    assert found.slope == 0
    assert found.confidence(chosen(-0.1)) == pytest.approx(0.5)


def test_few_questions_make_no_calibration():
    assert Calibration.fit([chosen(-0.1)] * 19, [True] * 19) is None


def test_the_calibration_error_by_hand():
    """Two bins: 0.9 said and 3 of 4 right, 0.2 said and 1 of 2 right: (4 * 0.15 + 2 * 0.3) / 6."""
    error = calibration_error([0.9] * 4 + [0.2] * 2, [True, True, True, False, True, False])
    assert error == pytest.approx((4 * 0.15 + 2 * 0.3) / 6)


def test_each_turn_is_a_choice_and_unknown_without_probabilities():
    def episode(*logprobs):
        turns = tuple(Turn(0, len(part), part, "", Status.OK) for part in logprobs)
        return Trajectory((), turns, Status.ANSWERED)

    assert choices_of(episode((-0.5, -0.25), (-1.0,))) == chosen(-0.75, -1.0)
    assert choices_of(episode((), ())) is None


def test_the_least_likely_choice_decides_and_in_earlier_versions_all_of_them():
    choices = chosen(math.log(0.5), math.log(0.4), math.log(0.9))
    assert Calibration(0.0, 1.0, 20, least=True).confidence(choices) == pytest.approx(0.4)
    assert Calibration(intercept=0.0, slope=1.0, questions=20).confidence(choices) == (pytest.approx(0.18))
    assert Calibration.fit([choices] * 30, [True] * 30).least


def test_answers_after_declining_are_right_only_if_that_was_wrong():
    """0.9 to decline, then 0.8 for a candidate: 0.1 and 0.8."""
    declined = Turn(0, 1, (math.log(0.9),), "<3>", Status.OK, DECLINED)
    answered = Turn(1, 2, (math.log(0.8),), "<1>", Status.ANSWERED)
    episode = Trajectory((), (declined, answered), Status.ANSWERED)
    assert choices_of(episode).log_likelihoods == pytest.approx((math.log(0.1), math.log(0.8)))
    certain = Trajectory((), (Turn(0, 1, (0.0,), "<3>", Status.OK, DECLINED), answered), Status.ANSWERED)
    assert all(map(math.isfinite, choices_of(certain).log_likelihoods))


@pytest.mark.parametrize(
    ("confidence", "presence", "least", "is_it"),
    [
        (0.6, 0.9, 0.6, False),
        (0.6, 0.9, 0.7, True),
        (0.9, 0.6, 0.7, True),
        (0.9, None, 0.7, False),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_an_answer_is_withheld_unless_it_is_likely_right_and_its_fact_likely_there(
    confidence, presence, least, is_it
):
    assert is_withheld(confidence, presence, least) is is_it


def test_the_share_of_a_search_is_among_the_choices():
    turns = (Turn(0, 1, (-0.5,), "<1>", Status.ANSWERED),)
    episode = Trajectory((), turns, Status.ANSWERED, search=Search(0.75, 0.9, 2, 40, 1))
    assert choices_of(episode) == Choices((-0.5,), share=0.75, presence=0.9)


SEARCHED = SearchCalibration(Scaling(0.0, 1.0), Scaling(0.0, 1.0))


@pytest.mark.parametrize(
    ("choices", "confidence"),
    [
        (Choices((-9.0,), share=0.8, presence=0.3), 0.8 * 0.3),
        # Nothing is certain.
        (Choices((-9.0,), share=0.8, presence=1.0), 0.8 * 0.9999),
        (Choices((-9.0,), share=1.0, presence=0.3), (1 - 1e-6) * 0.3),
        # What was not searched is as sure as its least likely choice.
        (chosen(math.log(0.6), math.log(0.5)), 0.5),
    ],
)
def test_a_fact_has_to_be_there_and_the_form_has_to_be_the_right_one(choices, confidence):
    found = Calibration(0.0, 1.0, 20, least=True, search=SEARCHED)
    assert found.confidence(choices) == pytest.approx(confidence, abs=1e-6)


def test_the_two_parts_are_fitted_apart():
    """Right with the odds of the share to the power of 0.5, there with those of presence to that of 0.8."""
    rng = random.Random(3)

    def searched(is_there):
        odds = rng.uniform(-4, 4)
        while rng.random() > 1 / (1 + math.exp((-1 if is_there else 1) * 0.8 * odds)):
            odds = rng.uniform(-4, 4)
        return Choices((-1.0,), 1 / (1 + math.exp(-rng.uniform(-4, 8))), 1 / (1 + math.exp(-odds)))

    episodes = [searched(True) for _ in range(8000)]
    right = [rng.random() < 1 / (1 + ((1 - one.share) / one.share) ** 0.5) for one in episodes]
    found = SearchCalibration.fit(episodes, right, [searched(False) for _ in range(8000)])
    assert found.right.slope == pytest.approx(0.5, abs=0.05)
    assert found.right.intercept == pytest.approx(0.0, abs=0.1)
    assert found.there.slope == pytest.approx(0.8, abs=0.05)
    # Half of them lack their fact; of the questions that people ask, one in twenty is taken to.
    assert found.there.intercept == pytest.approx(math.log(19), abs=0.1)


def test_what_was_fitted_for_searches_is_kept_beside_the_rest():
    found = Calibration.fit([chosen(-0.5)] * 30, [True] * 30, SEARCHED)
    assert found.search is SEARCHED
    assert Calibration.fit([chosen(-0.5)] * 30, [True] * 30).search is None


def test_presence_says_nothing_of_a_policy_whose_searches_were_not_measured():
    searched = Choices((-0.5,), share=0.7, presence=0.2)
    assert Calibration(0.0, 1.0, 20, search=SEARCHED).presence(searched) == 0.2
    assert Calibration(0.0, 1.0, 20).presence(searched) is None
    assert Calibration(0.0, 1.0, 20, search=SEARCHED).presence(Choices((-0.5,))) is None

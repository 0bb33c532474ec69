"""How confidence holds on an evaluation's questions: its error, and what each threshold leaves."""

from types import SimpleNamespace

import pytest

from kbqa.confidence import Calibration, Choices, Scaling, SearchCalibration
from kbqa.evaluation.certainty import confidences, measured

AS_IT_IS = Calibration(intercept=0.0, slope=1.0, questions=20)  # the likelihood itself


def record(likelihood, right, answers=("x",)):
    from math import log

    score = None if likelihood is None else log(likelihood)
    return SimpleNamespace(
        choices=None if score is None else Choices((score,)), is_right=right, answers=answers
    )


def test_each_threshold_has_its_share_of_all_questions():
    found = measured(
        AS_IT_IS,
        [record(0.85, True), record(0.85, True), record(0.55, False), record(0.15, False, answers=())],
    )
    assert found["questions"] == 3  # those with an answer
    assert found["calibration_error"] == pytest.approx((2 * 0.15 + 0.55) / 3)
    curve = {point["threshold"]: (point["coverage"], point["accuracy"]) for point in found["curve"]}
    assert curve[0.0] == (0.75, pytest.approx(2 / 3))
    assert curve[0.6] == (0.5, 1.0)
    assert curve[0.9] == (0.0, None)


def test_an_answer_whose_fact_is_likely_missing_is_not_covered():
    searched = Calibration(0.0, 1.0, 20, search=SearchCalibration(Scaling(9.0, 0.0), Scaling(0.0, 1.0)))
    doubted = SimpleNamespace(choices=Choices((0.0,), 0.9, 0.4), is_right=False, answers=("x",))
    found = measured(searched, [doubted])
    coverage = {point["threshold"]: point["coverage"] for point in found["curve"]}
    assert (coverage[0.4], coverage[0.5]) == (1.0, 0.0)
    assert confidences(searched, [doubted, record(None, True)]) == [pytest.approx(0.9, abs=1e-3), None]


def test_without_probabilities_nothing_is_measured():
    assert measured(AS_IT_IS, [record(None, True), record(0.5, False, answers=())]) is None

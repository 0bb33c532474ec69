"""Averages over data sets, and Pass@K: worked values."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import ConfigurationError
from kbqa.evaluation import evaluate
from kbqa.evaluation.averages import Measured, average, read_measured
from kbqa.judges import MatchingJudge
from kbqa.trajectory import Question
from tests.unit.evaluation.cases import episode

ASKED = Question("q", "who?", ("Byron",), (), "g")


def test_an_average_is_weighted_by_the_numbers_of_questions():
    # KG-R1's five sets: 1,000, 1,000, 5,000, 333 and 1,000 questions.
    figures = [(1000, 0.6), (1000, 0.4), (5000, 0.8), (333, 0.2), (1000, 0.5)]
    mean = average([Measured(str(n), questions, {"f1": f1}) for n, (questions, f1) in enumerate(figures)])
    assert mean.questions == 8333
    assert mean.metrics["f1"] == pytest.approx((600 + 400 + 4000 + 66.6 + 500) / 8333)


def test_only_metrics_of_all_evaluations_are_averaged():
    mean = average([Measured("a", 1, {"f1": 1.0, "accuracy": 1.0}), Measured("b", 3, {"f1": 0.0})])
    assert mean.metrics == {"f1": 0.25}


def test_a_file_of_another_kind_is_refused(tmp_path):
    file = tmp_path / "x.json"
    for content in ("[", "[]", json.dumps({"metrics": {}})):
        file.write_text(content)
        with pytest.raises(ConfigurationError, match="was not written by kbqa eval --json"):
            read_measured(file)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_measured(tmp_path / "none.json")


def test_pass_at_k_is_the_unbiased_estimate():
    right, wrong = episode("Byron"), episode("Eve")
    played = [(ASKED, [right, wrong, wrong, wrong]), (ASKED, [wrong] * 4)]
    found = evaluate(played, MatchingJudge())
    # One of four runs is right: 1 - C(3, k) / C(4, k) = k / 4; the other question is never right.
    assert [found.pass_at(k) for k in (1, 2, 3, 4)] == pytest.approx([1 / 8, 2 / 8, 3 / 8, 4 / 8])
    assert found.to_json()["pass_at"]["4"] == pytest.approx(0.5)
    assert evaluate([(ASKED, [right])], MatchingJudge()).to_json()["pass_at"] == {}

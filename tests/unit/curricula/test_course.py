"""Stages follow each other by a step or by what was measured, and survive a restart."""

from __future__ import annotations

import json

import pytest

from kbqa.curricula import Course, Stage, Until
from kbqa.errors import RunError


class Names:
    """`a0`, `a1`, … as questions."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, position: int, /) -> str:
        return f"{self._name}{position}"


def course(*untils: Until | None) -> Course:
    return Course([Stage(name, Names(name), until) for name, until in zip("abc", untils, strict=False)])


def test_a_single_stage_never_ends() -> None:
    made = course(None)
    assert [made.after_step({"f1": 1.0}, 4), made.after_evaluation({"f1": 1.0}, 4)] == [None, None]
    assert (made.stage, made[7]) == (0, "a7")


def test_a_stage_ends_after_its_steps_and_the_next_counts_its_own() -> None:
    made = course(Until(steps=2), Until(steps=1), None)
    assert made.after_step({}, 3) is None
    assert made.after_step({}, 5) == "2 steps were made"
    assert (made.stage, made.name) == (1, "b")
    # What was asked before keeps its stage; the next one begins with its own first question.
    assert [made[position] for position in range(3, 8)] == ["a3", "a4", "b0", "b1", "b2"]
    assert made.after_step({}, 9) is not None
    assert [made.stage_at(position) for position in (0, 4, 5, 8, 9, 99)] == [0, 0, 1, 1, 2, 2]
    assert made.after_step({}, 11) is None  # the last stage has no end


def test_a_stage_ends_once_a_value_is_reached() -> None:
    made = course(Until(at_least=0.6, metric="rhits1"), None)
    assert made.after_evaluation({"rhits1": 0.59, "f1": 0.9}, 4) is None
    assert made.after_evaluation({"rhits1": 0.6, "f1": 0.1}, 8) == "rhits1 has reached 0.600"


def test_a_plateau_is_so_many_looks_without_a_gain() -> None:
    made = course(Until(patience=2, min_gain=0.01), None)
    values = (0.5, 0.6, 0.605, 0.7, 0.705, 0.65)
    reasons = [made.after_evaluation({"f1": value}, 10) for value in values]
    assert reasons == [None] * 5 + ["f1 has not risen above 0.700 in 2 looks"]


def test_training_is_looked_at_by_the_mean_of_a_window() -> None:
    made = course(Until(at_least=0.5, split="train", window=2), None)
    assert made.after_evaluation({"f1": 1.0}, 1) is None
    values = (0.9, 0.0, 0.6, 0.4)  # means of two: 0.45, 0.3, 0.5
    reasons = [made.after_step({"f1": value}, 10) for value in values]
    assert reasons == [None, None, None, "f1 has reached 0.500"]


def test_whichever_comes_first_counts() -> None:
    made = course(Until(steps=3, at_least=0.5), None)
    assert made.after_step({}, 1) is None
    assert made.after_evaluation({"f1": 0.5}, 2) is not None


def test_a_course_goes_on_where_it_was() -> None:
    untils = (Until(patience=2), Until(steps=3), None)
    made, again = course(*untils), course(*untils)
    made.after_evaluation({"f1": 0.5}, 4)
    made.after_evaluation({"f1": 0.4}, 8)
    again.restore(json.loads(json.dumps(made.to_json())))
    assert again.after_evaluation({"f1": 0.4}, 12) == made.after_evaluation({"f1": 0.4}, 12) is not None
    again.after_step({}, 16)
    third = course(*untils)
    third.restore(json.loads(json.dumps(again.to_json())))
    assert [third[p] for p in (11, 12, 13)] == ["a11", "b0", "b1"]
    assert [third.after_step({}, 20), third.after_step({}, 24)] == [None, "3 steps were made"]


def test_a_metric_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(RunError, match=r"stage a waits for f2, .* \(they contain: em, f1\)"):
        course(Until(at_least=1.0, metric="f2"), None).after_evaluation({"f1": 0.5, "em": 0.1}, 1)
    with pytest.raises(ValueError, match="at least one stage"):
        Course([])

"""What decides about a lesson's promotion."""

from __future__ import annotations

import pytest

from kbqa.corrections.judging import Judgement


@pytest.mark.parametrize(
    ("before", "after", "broken", "says"),
    [
        ((0.2, 0.9), (0.9, 0.9), (), []),
        ((0.2, 0.9), (0.9, 0.89), (), []),
        ((0.2, 0.9), (0.9, 0.88), (), ["earlier questions lose 0.020 of their F1; at most 0.01 is allowed"]),
        ((0.2, 0.9), (0.9, 0.95), ("q1",), ["must-answer questions break: q1"]),
        ((0.2, 0.9), (0.9, 0.95), tuple("abcdef"), ["must-answer questions break: a, b, c, d, e …"]),
    ],
)
def test_a_lesson_that_forgets_is_not_promoted(before, after, broken, says):
    old, new = (dict(zip(("corrections", "earlier"), f1, strict=True)) for f1 in (before, after))
    assert Judgement(old, new, broken).objections() == says


@pytest.mark.parametrize(
    ("learned", "says"),
    [
        ({}, []),  # nothing was new
        ({"ann": (0.0, 0.5)}, []),
        ({"ann": (1.0, 1.0)}, []),
        ({"ann": (0.4, 0.69)}, ["too little of what ann said was learned: F1 0.400 → 0.690"]),
        ({"ann": (0.0, 0.9), "": (0.0, 0.0)}, ["too little of what users without a key said was learned"]),
    ],
)
def test_a_teacher_whose_new_corrections_are_not_learned_beside_the_replay_stops_a_lesson(learned, says):
    f1 = {"corrections": 0.5, "earlier": 0.9}  # that of all corrections may rise by those of others
    found = Judgement(f1, {**f1, "corrections": 0.6}, (), learned).objections()
    assert [reason.startswith(start) for reason, start in zip(found, says, strict=True)] == [True] * len(says)

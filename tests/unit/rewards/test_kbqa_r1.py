"""KBQA-R1's reward, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbqa.rewards import Instruments, KbqaR1Reward
from kbqa.trajectory import ExecutedAction, Status, Trajectory
from tests.unit.episodes import question, turn


def play(*answers, tidy=(True, True), status=Status.ANSWERED, kind=None, last="<answer>x</answer>"):
    action = ExecutedAction("find_relation", {}, "KG_SERVER_ERROR" if kind else None, kind=kind)
    turns = tuple(turn(i * 5 + 1, i * 5 + 5, well_formed=good) for i, good in enumerate(tidy))
    asked = "<think>t</think><action>a</action>"
    turns = (
        replace(turns[0], actions=(action,), text=asked, observation="<information></information>"),
        *turns[1:-1],
        replace(turns[-1], text=last),
    )
    return Trajectory(tuple(range(100)), turns, status, answers)


@pytest.mark.parametrize(
    ("trajectory", "options", "expected"),
    [
        (play("A", "B"), {}, 1.1),
        (play("A"), {}, 2 / 3 + 0.1),
        (play("C"), {}, 0.0),  # good format earns nothing while the answer is all wrong
        (play("A", "B", tidy=(True, False)), {}, 1.0),
        (play(tidy=(True, False), status=Status.OUT_OF_TURNS), {}, 0.0),
        (play(tidy=(True, False), status=Status.OUT_OF_TURNS), {"partial_format": 0.3}, 0.0),
        (play("C", tidy=(True, False)), {"partial_format": 0.3}, 0.0),
        # Every tag is there in pairs, though the last turn is not in order.
        (play("A", "B", tidy=(True, False)), {"partial_format": 0.3}, 1.0 + 0.1 * 0.3),
        # <think> is opened twice and closed once, <answer> is never closed: (0.5 + 1 + 1 + 0.2) / 4
        (
            play("A", "B", tidy=(True, False), last="<think>t<answer>A B"),
            {"partial_format": 0.3},
            1.0 + 0.1 * 0.3 * 2.7 / 4,
        ),
        (play("A", "B", kind="query_timeout"), {}, 1.1),
        (play("A", "B", kind="query_timeout"), {"timeouts_score_nothing": True}, 0.0),
    ],
)
def test_worked_values(trajectory, options, expected):
    scored = KbqaR1Reward(**options).score(
        question("A", "B"), trajectory, Instruments(tools=None, judge=None)
    )
    assert scored.outcome == pytest.approx(expected)

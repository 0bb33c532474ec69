"""Rewards of answers by another name than the gold answers have, and of questions with several gold sets."""

from __future__ import annotations

import pytest

from kbqa.judges import MatchingJudge
from kbqa.rewards import (
    Instruments,
    IspKgrReward,
    KbqaR1Reward,
    KgR1Reward,
    KnowCoderA1Reward,
    LearningToRefineReward,
)
from kbqa.trajectory import ExecutedAction, Question, Status, Trajectory
from tests.unit.episodes import turn


class NoDistance:
    """A graph in which nothing is connected."""

    def execute(self, kg, actions, *, graph=None):
        return [None] * len(actions)


def play(*answers, ids=()):
    query = ExecutedAction(
        "execute_sparql", {"query": "SELECT ?x { ?x ?y ?z }"}, items=("Q38",), labels=("Italy",)
    )
    turns = (turn(1, 5, actions=[query]), turn(6, 10, status=Status.ANSWERED))
    return Trajectory(tuple(range(20)), turns, Status.ANSWERED, answers, ids)


def scored(reward, asked, trajectory):
    return reward.score(asked, trajectory, Instruments(NoDistance(), MatchingJudge()))


LABELS = Question("q", "?", ("Italy",), (), "g", names=(("Italy", "Q38"),))
IDS = Question("q", "?", ("Q38",), (), "g", names=(("Q38", "Italy"),))
SETS = Question("q", "?", ("Spain", "Malta"), (), "g", variants=(("Italy",),), names=(("Italy", "Q38"),))


@pytest.mark.parametrize("asked", [LABELS, IDS, SETS], ids=["labels", "ids", "several sets"])
@pytest.mark.parametrize(
    "trajectory",
    [play("Q38", ids=(("Q38",),)), play("Italy", ids=(("Q38",),)), play("Italy")],
)
@pytest.mark.parametrize(
    ("reward", "outcome"),
    [
        (KbqaR1Reward(), 1.1),
        (KgR1Reward(), 2.0),  # F1 and a retrieved gold answer
        (KnowCoderA1Reward(), 1.0),
        (LearningToRefineReward(), 1.46),
    ],
)
def test_a_right_answer_earns_the_same_by_any_name(reward, outcome, asked, trajectory):
    found = scored(reward, asked, trajectory)
    assert found.outcome == pytest.approx(outcome)
    assert (found.components["f1"], found.components["em"], found.components["hit"]) == (1.0, 1.0, 1.0)


def test_steps_of_isp_kgr_see_the_outcome_by_any_name():
    for asked in (LABELS, IDS, SETS):
        found = scored(IspKgrReward(), asked, play("Q38", ids=(("Q38",),)))
        assert found.turn_rewards[-1] == pytest.approx(0.4)  # 0.1 format, 0.3 outcome


def test_f_beta_is_that_of_the_nearest_set():
    asked = Question("q", "?", ("a", "b"), (), "g", variants=(("a", "b", "c", "d"),))
    # {a, b, c}: F1 0.8 with the first set, 6/7 with the second, where P = 1 and R = 3/4.
    found = scored(KnowCoderA1Reward(format=0.0), asked, play("a", "b", "c"))
    assert found.components["f1"] == pytest.approx(6 / 7)
    assert found.outcome == pytest.approx(1.25 * 0.75 / (0.25 + 0.75))

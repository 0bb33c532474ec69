"""Learning-to-Refine's reward, worked by hand."""

from __future__ import annotations

import pytest

from kbqa.errors import JudgeUnavailableError
from kbqa.judges import MatchingJudge
from kbqa.rewards import Instruments, LearningToRefineReward
from kbqa.trajectory import ExecutedAction, Status, Trajectory
from tests.unit.episodes import question, turn


def executed(code=None, items=("Byron",)):
    return ExecutedAction("execute_sparql", {"query": "SELECT"}, code, items, items)


def play(*actions, answer="Byron", status=Status.ANSWERED, well_formed=True):
    turns = [turn(i * 5 + 1, i * 5 + 5, actions=[action]) for i, action in enumerate(actions)]
    if status is Status.ANSWERED:
        end = len(turns) * 5
        turns.append(turn(end + 1, end + 5, status=status, well_formed=well_formed))
    return Trajectory(tuple(range(100)), tuple(turns), status, (answer,))


def score(trajectory, judge=None):
    instruments = Instruments(tools=None, judge=judge or MatchingJudge())
    return LearningToRefineReward().score(question("Byron"), trajectory, instruments)


@pytest.mark.parametrize(
    ("trajectory", "reward"),
    [
        (play(executed()), 1.46),  # gold with one query: 1 + 0.5 - 0.02 * 2
        (play(), 1.48),  # gold without any
        (play(executed(), answer="Eve"), 0.76),  # 1 - 0.2 - 0.04
        (play(executed("KG_FORMAT_ERROR", ()), executed()), 1.34),  # 1.5 - 0.1 - 0.06
        (play(executed(items=()), executed()), 1.44),  # an empty result is no error
        (play(executed(), well_formed=False), -1.0),
        (play(executed(), status=Status.OUT_OF_TURNS), -1.0),
        (play(executed(), status=Status.UNPARSABLE), -1.0),
    ],
)
def test_worked_values(trajectory, reward):
    assert score(trajectory).outcome == pytest.approx(reward)


def test_executability_is_the_share_of_queries_that_ran():
    scored = score(play(executed("KG_SERVER_ERROR", ()), executed(), executed()))
    assert scored.components["executability"] == pytest.approx(2 / 3)
    assert scored.components["accuracy"] == 1.0
    assert set(scored.turn_rewards) == {0.0}


def test_without_a_verdict_there_is_no_reward():
    class Silent:
        def verdict(self, *_):
            raise JudgeUnavailableError("silent")

    with pytest.raises(JudgeUnavailableError):
        score(play(executed()), Silent())
    # An invalid trajectory needs no verdict.
    assert score(play(executed(), status=Status.OUT_OF_TURNS), Silent()).outcome == -1.0

"""Learning-to-Refine's terminal reward (section 3.3.1).

R = -1 unless the trajectory is structurally valid, otherwise
R = 1 + R_ans - (0.1 N_err + 0.02 T)
"""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.gold import judged
from kbqa.rewards.base import REWARDS, Instruments, measures
from kbqa.trajectory import Question, RewardedTrajectory, Status, Trajectory


@REWARDS.register("learning_to_refine")
@dataclass(frozen=True, slots=True)
class LearningToRefineReward:
    """A right answer after one query earns 1 + 0.5 - 0.02 * 2 = 1.46.

    Attributes:
        correct, incorrect: R_ans, by the judge's verdict.
        error_cost: for each of N_err: queries with a syntax error, a timeout or a failure of
            the endpoint. An empty result is not an error.
        turn_cost: for each of T turns, including the answer.
        invalid: the reward of a trajectory that breaks the format or does not end in an answer.
    """

    correct: float = 0.5
    incorrect: float = -0.2
    error_cost: float = 0.1
    turn_cost: float = 0.02
    invalid: float = -1.0

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        valid = trajectory.status is Status.ANSWERED and all(turn.well_formed for turn in trajectory.turns)
        errors = sum(action.code is not None for action in trajectory.actions)
        correct = False
        reward = self.invalid
        if valid:
            correct = judged(
                instruments.judge.verdict, question, trajectory.answers, trajectory.answer_ids, [trajectory]
            ).correct
            reward = 1 + (self.correct if correct else self.incorrect)
            reward -= self.error_cost * errors + self.turn_cost * len(trajectory.turns)
        queries = sum(1 for _ in trajectory.actions)
        components = {
            **measures(question, trajectory),
            "accuracy": float(correct),
            "valid": float(valid),
            "executability": 1 - errors / queries if queries else 1.0,
        }
        return RewardedTrajectory(trajectory, (0.0,) * len(trajectory.turns), reward, components)

"""KBQA-R1's reward (section IV-C1): F1, and the format where the answer is not all wrong.

R = w_F1 F1 + w_format 1[F1 > 0] 1[format]
"""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.rewards.base import REWARDS, Instruments, measures
from kbqa.trajectory import Question, RewardedTrajectory, Status, Trajectory


@REWARDS.register("kbqa_r1")
@dataclass(frozen=True, slots=True)
class KbqaR1Reward:
    """Answers are compared as a set; the format holds if every turn is well formed and the last answers.

    Attributes:
        partial_format: of w_format, what well-formed turns earn in a trajectory whose format
            does not hold, times their share (the released code: 0.3; the paper: nothing).
        timeouts_score_nothing: a trajectory that met a timeout earns 0 outright (released code).
    """

    w_f1: float = 1.0
    w_format: float = 0.1
    partial_format: float = 0.0
    timeouts_score_nothing: bool = False

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        measured = measures(question, trajectory)
        turns = trajectory.turns
        tidy = sum(turn.well_formed for turn in turns) / len(turns) if turns else 0.0
        formatted = tidy == 1.0 and trajectory.status is Status.ANSWERED
        reward = self.w_f1 * measured["f1"]
        if formatted:
            reward += self.w_format * (measured["f1"] > 0)
        else:
            reward += self.w_format * self.partial_format * tidy
        timed_out = any(action.kind == "query_timeout" for action in trajectory.actions)
        if self.timeouts_score_nothing and timed_out:
            reward = 0.0
        components = {**measured, "format": float(formatted)}
        return RewardedTrajectory(trajectory, (0.0,) * len(turns), reward, components)

"""The reward port."""

from __future__ import annotations

from typing import Protocol

from kbqa.trajectory import Question, RewardedTrajectory, Trajectory


class Reward(Protocol):
    """Scores one trajectory against the gold answers of its question."""

    def score(self, question: Question, trajectory: Trajectory) -> RewardedTrajectory: ...

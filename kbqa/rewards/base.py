"""The reward port, and the rewards that a recipe may name."""

from __future__ import annotations

from typing import Protocol

from kbqa.kg.actions import GraphTools
from kbqa.parts import Parts
from kbqa.trajectory import Question, RewardedTrajectory, Trajectory


class Reward(Protocol):
    """Scores one trajectory against the gold answers of its question."""

    def score(self, question: Question, trajectory: Trajectory, tools: GraphTools) -> RewardedTrajectory:
        """What the trajectory is worth.

        Args:
            tools: the graph, for rewards that measure distances in it.
        """
        ...


REWARDS: Parts[Reward] = Parts("rewards")

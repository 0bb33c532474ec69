"""Advantages: rewards of a group turned into credit, in plain floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kbqa.advantages.group import Baseline, Deviation, has_spread
from kbqa.advantages.state import sibling_advantages
from kbqa.advantages.turn import pooled, trajectory_returns, turn_and_outcome, turn_returns
from kbqa.trajectory import (
    Group,
    RewardedTrajectory,
    RewardedTree,
    ScoredRollout,
    TrainingSample,
    step_sample,
    training_sample,
)

__all__ = [
    "Advantage",
    "AdvantageKind",
    "Baseline",
    "Deviation",
    "has_spread",
    "pooled",
    "sibling_advantages",
    "trajectory_returns",
    "turn_and_outcome",
    "turn_returns",
]

AdvantageKind = Literal["group", "turn", "turn_and_outcome", "state"]


@dataclass(frozen=True, slots=True)
class Advantage:
    """How a recipe gives credit.

    Attributes:
        kind: `group` gives a trajectory one value, from its mean turn reward plus its outcome;
            `turn` pools r_t + lambda R over all turns (KG-R1); `turn_and_outcome`
            standardises turn rewards and outcomes apart (KG-R1's released code); `state`
            compares the steps of a tree with their siblings (ISP-KGR).
        lam: weight of the outcome beside the turn rewards, in `group` and `turn`.
        turn_weight, outcome_weight: of the two parts of `turn_and_outcome`.
    """

    kind: AdvantageKind = "group"
    lam: float = 1.0
    baseline: Baseline = field(default_factory=Baseline)
    turn_weight: float = 0.5
    outcome_weight: float = 1.0

    def samples(self, group: ScoredRollout) -> list[TrainingSample]:
        """Training samples of a group, or of all groups of a tree; none of one without spread.

        Raises:
            ValueError: `state` was given a group, or another kind a tree.
        """
        if isinstance(group, RewardedTree) != (self.kind == "state"):
            raise ValueError(f"advantages of kind {self.kind} are not for a {type(group).__name__}")
        if isinstance(group, RewardedTree):
            return [
                step_sample(group.tree, index, advantage)
                for index, advantage in self.of_steps(group).items()
                if group.tree.steps[index].turn.logprobs  # a turn without a token has nothing to learn
            ]
        rows = self.of_turns(group)
        return [training_sample(m.trajectory, row) for m, row in zip(group.members, rows, strict=True) if row]

    def of_steps(self, tree: RewardedTree) -> dict[int, float]:
        """Advantage of each step of a tree, by its index; none of those whose siblings have no spread."""
        return {
            index: advantage
            for siblings, advantages in sibling_advantages(tree, self.baseline)
            for index, advantage in zip(siblings.steps, advantages, strict=True)
        }

    def of_turns(self, group: Group) -> list[list[float]]:
        """Advantage of each turn of each trajectory; all rows are empty where the group has no spread."""
        members = [member for member in group.members if member.trajectory.turns]
        rows = iter(self._rows(members) if members else ())
        return [next(rows, []) if member.trajectory.turns else [] for member in group.members]

    def _rows(self, members: Sequence[RewardedTrajectory]) -> list[list[float]]:
        """One row for each trajectory; none where there is no spread."""
        turn_rewards = [member.turn_rewards for member in members]
        outcomes = [member.outcome for member in members]
        if self.kind == "group":
            returns = trajectory_returns(turn_rewards, [self.lam * outcome for outcome in outcomes])
            spread = has_spread(returns)
            values = self.baseline.advantages(returns)
            rows = [[value] * len(rewards) for value, rewards in zip(values, turn_rewards, strict=True)]
        elif self.kind == "turn":
            ragged = turn_returns(turn_rewards, outcomes, self.lam)
            spread = has_spread([value for row in ragged for value in row])
            rows = pooled(ragged, self.baseline)
        else:
            spread = has_spread(outcomes) or has_spread([reward for row in turn_rewards for reward in row])
            weights = {"turn_weight": self.turn_weight, "outcome_weight": self.outcome_weight}
            rows = turn_and_outcome(turn_rewards, outcomes, self.baseline, **weights)
        return rows if spread else []

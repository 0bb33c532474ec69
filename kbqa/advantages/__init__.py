"""Advantages: turns the rewards of a group into credit, in plain floats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from kbqa.advantages.group import Baseline, Deviation, has_spread
from kbqa.advantages.state import sibling_advantages
from kbqa.advantages.turn import pooled, trajectory_returns, turn_and_outcome, turn_returns
from kbqa.parts import Parts
from kbqa.trajectory import Group, RewardedTrajectory, TrainingSample, training_sample
from kbqa.tree import RewardedTree, ScoredRollout, step_sample

__all__ = [
    "ADVANTAGES",
    "Advantage",
    "AdvantageKind",
    "Baseline",
    "Credit",
    "Deviation",
    "WithoutSpread",
    "has_spread",
    "pooled",
    "sibling_advantages",
    "trajectory_returns",
    "turn_and_outcome",
    "turn_returns",
]

AdvantageKind = Literal["group", "turn", "turn_and_outcome", "state"]
WithoutSpread = Literal["dropped", "unsolved_kept", "kept"]


class Credit(ABC):
    """Assigns credit to the turns of a group.

    Another distribution can add a kind: a dataclass with `rows`, by an entry point of the group
    `kbqa.advantages`. A recipe selects it in `advantage.kind`.
    """

    __slots__ = ()

    @abstractmethod
    def rows(self, members: Sequence[RewardedTrajectory]) -> list[list[float]]:
        """The advantage of each turn of each trajectory of a group; empty if the group teaches nothing.

        Args:
            members: at least one; each has at least one turn.
        """

    def samples(self, rollout: ScoredRollout) -> list[TrainingSample]:
        """Training samples of a group, or of all groups of a tree; what teaches nothing yields none.

        Raises:
            ValueError: the credit does not support rollouts of this kind.
        """
        if isinstance(rollout, RewardedTree):
            raise ValueError(f"{type(self).__name__} is not for trees")
        rows = self.of_turns(rollout)
        members = zip(rollout.members, rows, strict=True)
        return [training_sample(member.trajectory, row) for member, row in members if row]

    def of_turns(self, group: Group) -> list[list[float]]:
        """Advantage of each turn of each trajectory; all rows are empty if the group has no spread."""
        members = [member for member in group.members if member.trajectory.turns]
        rows = iter(self.rows(members) if members else ())
        return [next(rows, []) if member.trajectory.turns else [] for member in group.members]

    def of_steps(self, tree: RewardedTree) -> dict[int, float]:
        """Step index → advantage, for the steps of a tree; without steps that teach nothing."""
        raise ValueError(f"{type(self).__name__} is not for trees")


ADVANTAGES: Parts[Credit] = Parts("advantages")


@dataclass(frozen=True, slots=True)
class Advantage(Credit):
    """The papers' ways to assign credit.

    Attributes:
        kind: `group` gives a trajectory one value, from its mean turn reward plus its outcome;
            `turn` pools r_t + lambda R over all turns (KG-R1); `turn_and_outcome`
            standardises turn rewards and outcomes separately (KG-R1's released code); `state`
            compares the steps of a tree with their siblings (ISP-KGR).
        lam: weight of the outcome relative to the turn rewards, in `group` and `turn`. Since returns are
            normalised, a weight w of the turn rewards is the same as lam / w (KG-R1's w_turn, E.3).
        baseline: the normalisation of returns.
        turn_weight, outcome_weight: weights of the two parts of `turn_and_outcome`.
        without_spread: whether groups whose returns are all equal are `dropped`, or `kept` with advantages
            of 0: then their tokens still count in the objective's KL term and denominators (KG-R1, 3.3).
            `unsolved_kept` keeps those of which no trajectory has an F1 of 1: an entropy bonus then makes a
            policy explore where it is certain and wrong. Those of a tree are always dropped (ISP-KGR,
            appendix C).
    """

    kind: AdvantageKind = "group"
    lam: float = 1.0
    baseline: Baseline = field(default_factory=Baseline)
    turn_weight: float = 0.5
    outcome_weight: float = 1.0
    without_spread: WithoutSpread = "dropped"

    def samples(self, rollout: ScoredRollout) -> list[TrainingSample]:
        """As `Credit.samples`; `state` supports only trees, all other kinds only groups."""
        if isinstance(rollout, RewardedTree) != (self.kind == "state"):
            raise ValueError(f"advantages of kind {self.kind} are not for a {type(rollout).__name__}")
        if isinstance(rollout, RewardedTree):
            return [
                step_sample(rollout.tree, index, advantage)
                for index, advantage in self.of_steps(rollout).items()
                if rollout.tree.steps[index].turn.logprobs  # a turn without tokens cannot be trained on
            ]
        return Credit.samples(self, rollout)

    def of_steps(self, tree: RewardedTree) -> dict[int, float]:
        """Step index → advantage, for the steps of a tree; without steps whose siblings have no spread."""
        return {
            index: advantage
            for siblings, advantages in sibling_advantages(tree, self.baseline)
            for index, advantage in zip(siblings.steps, advantages, strict=True)
        }

    def rows(self, members: Sequence[RewardedTrajectory]) -> list[list[float]]:
        """As `Credit.rows`; without spread empty, or zeros if such groups are kept."""
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
        if spread:
            return rows
        kept = self.without_spread == "kept"
        if self.without_spread == "unsolved_kept":
            kept = all(member.components["f1"] < 1 for member in members)
        return [[0.0] * len(rewards) for rewards in turn_rewards] if kept else []

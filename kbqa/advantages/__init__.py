"""Advantages: rewards of a group turned into credit, in plain floats."""

from __future__ import annotations

from typing import Literal

from kbqa.advantages.group import group_advantages, has_spread
from kbqa.advantages.turn import trajectory_returns, turn_advantages, turn_returns
from kbqa.trajectory import Group, TrainingSample, training_sample

__all__ = [
    "AdvantageKind",
    "group_advantages",
    "has_spread",
    "samples_of",
    "trajectory_returns",
    "turn_advantages",
    "turn_returns",
]

AdvantageKind = Literal["turn", "group", "group_mean_only"]


def samples_of(group: Group, kind: AdvantageKind, lam: float = 1.0) -> list[TrainingSample]:
    """Training samples of a group, or none if its returns have no spread.

    Args:
        kind: `turn` pools all turns (KG-R1); `group` gives a trajectory one value, divided
            by the group's deviation; `group_mean_only` leaves the division out.
        lam: weight of the outcome beside the turn rewards.
    """
    members = [member for member in group.members if member.trajectory.turns]
    turn_rewards = [member.turn_rewards for member in members]
    outcomes = [member.outcome for member in members]
    if kind == "turn":
        flat = [value for row in turn_returns(turn_rewards, outcomes, lam) for value in row]
        advantages = turn_advantages(turn_rewards, outcomes, lam) if flat else []
    else:
        flat = trajectory_returns(turn_rewards, [lam * outcome for outcome in outcomes])
        values = group_advantages(flat, by_deviation=kind == "group") if flat else []
        advantages = [[value] * len(rewards) for value, rewards in zip(values, turn_rewards, strict=True)]
    if not flat or not has_spread(flat):
        return []
    return [training_sample(member.trajectory, row) for member, row in zip(members, advantages, strict=True)]

"""Rewards: what a trajectory is worth, from its gold answers alone."""

from __future__ import annotations

from kbqa.rewards.base import Reward
from kbqa.rewards.kg_r1 import KgR1Reward

__all__ = ["REWARDS", "Reward", "make_reward"]

REWARDS = {"kg_r1": KgR1Reward}


def make_reward(name: str, options: dict[str, float | bool]) -> Reward:
    """The reward that a recipe names, with its options.

    Raises:
        KeyError: there is no reward of that name.
        TypeError: an option is not one of the reward's.
    """
    return REWARDS[name](**options)  # type: ignore[arg-type]

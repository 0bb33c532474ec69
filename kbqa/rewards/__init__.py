"""Rewards: what a trajectory is worth, from its gold answers alone."""

from __future__ import annotations

from kbqa.rewards.base import REWARDS, Reward
from kbqa.rewards.kg_r1 import KgR1Reward

__all__ = ["REWARDS", "KgR1Reward", "Reward"]

"""Rewards: scores of trajectories, from gold answers and, if a recipe asks for it, from the graph."""

from __future__ import annotations

from kbqa.rewards.base import REWARDS, Instruments, Reward, TreeReward
from kbqa.rewards.isp_kgr import IspKgrReward
from kbqa.rewards.kbqa_r1 import KbqaR1Reward
from kbqa.rewards.kg_r1 import KgR1Reward
from kbqa.rewards.knowcoder_a1 import KnowCoderA1Reward
from kbqa.rewards.learning_to_refine import LearningToRefineReward
from kbqa.rewards.supported import SupportedKgR1Reward

__all__ = [
    "REWARDS",
    "Instruments",
    "IspKgrReward",
    "KbqaR1Reward",
    "KgR1Reward",
    "KnowCoderA1Reward",
    "LearningToRefineReward",
    "Reward",
    "SupportedKgR1Reward",
    "TreeReward",
]

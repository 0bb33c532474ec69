"""Rollouts: how trajectories of a question come about."""

from kbqa.rollouts.agent import Agent, ChatAgent, Player
from kbqa.rollouts.linear import TurnListener, linear_rollout
from kbqa.rollouts.tree import Branching, Pruning, tree_rollout

__all__ = [
    "Agent",
    "Branching",
    "ChatAgent",
    "Player",
    "Pruning",
    "TurnListener",
    "linear_rollout",
    "tree_rollout",
]

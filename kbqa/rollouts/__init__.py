"""Rollouts: how trajectories of a question come about."""

from kbqa.rollouts.agent import Agent, ChatAgent, Player
from kbqa.rollouts.linear import Listener, linear_rollout
from kbqa.rollouts.tree import Branching, Pruning, tree_rollout

__all__ = [
    "Agent",
    "Branching",
    "ChatAgent",
    "Listener",
    "Player",
    "Pruning",
    "linear_rollout",
    "tree_rollout",
]

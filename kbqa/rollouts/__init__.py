"""Rollouts: playing a question with a policy."""

from kbqa.rollouts.agent import Agent, ChatAgent, Player, Searcher
from kbqa.rollouts.beam import answering_rollout
from kbqa.rollouts.kinds import KINDS, Rollout
from kbqa.rollouts.linear import Listener, linear_rollout
from kbqa.rollouts.tree import Beyond, Branching, Pruning, tree_rollout

__all__ = [
    "KINDS",
    "Agent",
    "Beyond",
    "Branching",
    "ChatAgent",
    "Listener",
    "Player",
    "Pruning",
    "Rollout",
    "Searcher",
    "answering_rollout",
    "linear_rollout",
    "tree_rollout",
]

"""Rollouts: how trajectories of a question come about."""

from kbqa.rollouts.linear import Agent, TurnListener, linear_rollout

__all__ = ["Agent", "TurnListener", "linear_rollout"]

"""The environment of an agent: an episode with its budgets."""

from kbqa.environment.episode import Budget, Episode

__all__ = ["Budget", "Episode"]

"""The environment of an agent: an episode with its budgets."""

from kbqa.environment.chat import ChatEpisode
from kbqa.environment.episode import Episode
from kbqa.environment.play import Budget, Play

__all__ = ["Budget", "ChatEpisode", "Episode", "Play"]

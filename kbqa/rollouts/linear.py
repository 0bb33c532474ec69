"""Linear rollouts: N independent episodes of one question, advanced together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from kbqa.kg.actions import Action
from kbqa.policies.base import is_unwanted
from kbqa.rollouts.agent import EpisodeT, Player, Sampling, consult, require_one
from kbqa.rollouts.query_cache import QueryCache
from kbqa.trajectory import ExecutedAction, Question, Trajectory, Turn


class Listener(Protocol):
    """Is told about the turns of a rollout as they happen; runs are counted from 0."""

    def wrote(self, run: int, turn: Turn, actions: Sequence[Action | ExecutedAction]) -> None:
        """The policy has written a turn; `actions` are the first ones that will be executed, or were."""
        ...

    def took(self, run: int, turn: Turn) -> None:
        """The turn is complete: its actions have been executed."""
        ...


def linear_rollout(
    player: Player[EpisodeT],
    question: Question,
    n: int,
    temperature: float,
    *,
    seed: int | None = None,
    deadline: float | None = None,
    cancelled: threading.Event | None = None,
    listener: Listener | None = None,
) -> list[Trajectory]:
    """Roll out `n` trajectories of one question.

    In each turn, all running episodes share one call of the policy and one of the graph. Equal actions
    of several episodes are executed once.

    Args:
        temperature: 0 is greedy.
        seed: makes the samples repeatable; each turn draws from its own stream.
        deadline: `time.monotonic()` after which episodes that still run time out.
        cancelled: once set, episodes that still run time out.

    Raises:
        PolicyUnavailableError: the engine lost all episodes. Those that it lost beside others end as `LOST`.
        PolicyRefusedError, GraphNotFoundError, GraphUnavailableError: nothing is left of any episode.
    """
    tools = QueryCache(player.tools) if n > 1 else player.tools
    episodes = [player.begin(question) for _ in range(n)]
    consult(tools, question, episodes)
    turn = 0
    while running := [(run, episode) for run, episode in enumerate(episodes) if not episode.done]:
        if is_unwanted(deadline, cancelled):
            for _, episode in running:
                episode.expire()
            break
        player.speak([e for _, e in running], Sampling(turn, temperature, seed, deadline, cancelled))
        # An episode whose completion did not come in time has no such turn.
        spoken = [(run, episode) for run, episode in running if len(episode.turns) > turn]
        if listener is not None:
            for run, episode in spoken:
                listener.wrote(run, episode.turns[-1], episode.actions)
        consult(tools, question, [episode for _, episode in spoken])
        if listener is not None:
            for run, episode in spoken:
                listener.took(run, episode.turns[-1])
        turn += 1
    require_one(episodes)
    return [episode.trajectory() for episode in episodes]

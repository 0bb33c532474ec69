"""Linear rollouts: N independent episodes of one question, advanced together."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from kbqa.environment import Episode
from kbqa.rollouts.agent import Agent, take_turn
from kbqa.trajectory import Question, Trajectory, Turn

TurnListener = Callable[[int, Turn], None]
"""Called with the number of the run and each turn when it is complete."""


def linear_rollout(
    agent: Agent,
    question: Question,
    n: int,
    temperature: float,
    *,
    seed: int | None = None,
    deadline: float | None = None,
    on_turn: TurnListener | None = None,
) -> list[Trajectory]:
    """Roll out `n` trajectories of one question.

    All episodes that still run share one call of the policy and one of the graph a turn.

    Args:
        temperature: 0 is greedy.
        seed: makes the samples repeatable; each turn draws from its own stream.
        deadline: `time.monotonic()` after which episodes that still run time out.

    Raises:
        PolicyUnavailableError, GraphNotFoundError, GraphUnavailableError: nothing is salvaged,
            since a group is whole or not at all.
    """
    episodes = [Episode(question, agent.protocol, agent.codec, agent.budget) for _ in range(n)]
    turn = 0
    while running := [(run, episode) for run, episode in enumerate(episodes) if not episode.done]:
        if deadline is not None and monotonic() > deadline:
            for _, episode in running:
                episode.expire()
            break
        take_turn(agent, question, [episode for _, episode in running], temperature, turn=turn, seed=seed)
        if on_turn is not None:
            for run, episode in running:
                on_turn(run, episode.turns[-1])
        turn += 1
    return [episode.trajectory() for episode in episodes]

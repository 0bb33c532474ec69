"""Linear rollouts: N independent episodes of one question, advanced together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from kbqa.environment import Budget, Episode
from kbqa.kg.actions import GraphTools
from kbqa.policies.base import Codec, Policy, SamplingParams
from kbqa.protocols import AgentProtocol
from kbqa.trajectory import Question, Trajectory, Turn

_TURN_STRIDE = 7919  # keeps the streams of neighbouring turns and samples apart

TurnListener = Callable[[int, Turn], None]
"""Called with the number of the run and each turn when it is complete."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Everything that plays an episode but the question."""

    policy: Policy
    codec: Codec
    protocol: AgentProtocol
    tools: GraphTools
    budget: Budget


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
        completions = agent.policy.generate(
            [episode.token_ids for _, episode in running],
            SamplingParams(
                max_tokens=agent.budget.max_turn_tokens,
                max_total_tokens=agent.budget.max_tokens,
                temperature=temperature,
                stop=agent.protocol.stop,
                seed=None if seed is None else seed + _TURN_STRIDE * turn,
            ),
        )
        for (_, episode), completion in zip(running, completions, strict=True):
            episode.act(completion)
        _execute(agent, question, [episode for _, episode in running])
        if on_turn is not None:
            for run, episode in running:
                on_turn(run, episode.turns[-1])
        turn += 1
    return [episode.trajectory() for episode in episodes]


def _execute(agent: Agent, question: Question, episodes: list[Episode]) -> None:
    """Execute the pending actions of all episodes, a batch at a time, until their turns are complete."""
    while waiting := [episode for episode in episodes if episode.actions]:
        batch = [action for episode in waiting for action in episode.actions]
        results = iter(agent.tools.execute(question.kg, batch, graph=question.graph))
        for episode in waiting:
            episode.observe([next(results) for _ in episode.actions])

"""Who plays an episode, and how it plays a turn of many episodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.environment import Budget, Episode
from kbqa.kg.actions import GraphTools
from kbqa.policies.base import Codec, Policy, SamplingParams, Truncation
from kbqa.protocols import AgentProtocol
from kbqa.trajectory import Question

_TURN_STRIDE = 7919  # keeps the streams of neighbouring turns and samples apart


@dataclass(frozen=True, slots=True)
class Agent:
    """Everything that plays an episode but the question.

    Attributes:
        truncation: of the distributions that the policy draws from.
    """

    policy: Policy
    codec: Codec
    protocol: AgentProtocol
    tools: GraphTools
    budget: Budget
    truncation: Truncation = Truncation()


def take_turn(
    agent: Agent,
    question: Question,
    episodes: Sequence[Episode],
    temperature: float,
    *,
    turn: int,
    seed: int | None,
) -> None:
    """Play one turn of episodes that still run: one call of the policy, and one of the graph, for all.

    Args:
        turn: number of the turn; with a seed, each draws from its own stream.
    """
    completions = agent.policy.generate(
        [episode.token_ids for episode in episodes],
        SamplingParams(
            max_tokens=agent.budget.max_turn_tokens,
            max_total_tokens=agent.budget.max_tokens,
            temperature=temperature,
            stop=agent.protocol.stop,
            seed=None if seed is None else seed + _TURN_STRIDE * turn,
            truncation=agent.truncation,
        ),
    )
    for episode, completion in zip(episodes, completions, strict=True):
        episode.act(completion)
    # The graph's actions of a turn may need each other's results: a batch at a time.
    while waiting := [episode for episode in episodes if episode.actions]:
        batch = [action for episode in waiting for action in episode.actions]
        results = iter(agent.tools.execute(question.kg, batch, graph=question.graph))
        for episode in waiting:
            episode.observe([next(results) for _ in episode.actions])

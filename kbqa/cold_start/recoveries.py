"""Recoveries: demonstrations of what to do when a first turn has found nothing.

Gold programs never fail, so a policy that imitates them alone does not know how to go on when its
own query fails. In a recovery the first turn is a wrong one; only what follows is imitated.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kbqa.cold_start.demonstrations import Demonstration, is_right, play, recite
from kbqa.kg.actions import GraphTools, Success
from kbqa.protocols import AgentProtocol

_TRIES = 8  # wrong turns tried until one finds nothing
_CUT = 4  # maximum characters that a wrong name lacks


def recovery(
    demonstration: Demonstration,
    others: Sequence[Demonstration],
    protocol: AgentProtocol,
    tools: GraphTools,
    max_turns: int,
    rng: random.Random,
) -> Demonstration | None:
    """The same episode after a first turn that finds nothing, played in the real environment.

    The wrong turn is the first turn of another demonstration, about this topic, or the right first turn
    with a part of the topic's name left out. A policy that has learned little makes such mistakes.

    Returns:
        None if every wrong turn that was tried finds something, or the episode needs more than
        `max_turns` turns.

    Raises:
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    for _ in range(_TRIES):
        misnamed = demonstration.question.topic_entities and rng.random() < 0.5
        wrong = _misnamed(demonstration, rng) if misnamed else _astray(demonstration, others, rng)
        turns = [wrong, *demonstration.turns]
        played = play(demonstration.question, protocol, tools, recite(turns), max_turns)
        first = played.turns[0]
        nothing = not any(isinstance(result, Success) and result.items for result in first.results)
        if nothing and first.observation and is_right(played):
            prompt, mistake, *rest = played.demonstration.passages
            passages = (prompt, replace(mistake, imitated=False), *rest)
            return replace(played.demonstration, passages=passages)
    return None


def _astray(demonstration: Demonstration, others: Sequence[Demonstration], rng: random.Random) -> str:
    """The first turn of another question, about this topic."""
    other = rng.choice(others)
    there, here = other.question.topic_entities, demonstration.question.topic_entities
    return other.renamed(dict(zip(there, here, strict=False))).turns[0]


def _misnamed(demonstration: Demonstration, rng: random.Random) -> str:
    """The first turn, with some letters of the topic's name left out."""
    name = demonstration.question.topic_entities[0]
    start, count = rng.randrange(len(name)), rng.randint(1, _CUT)
    return demonstration.renamed({name: name[:start] + name[start + count :]}).turns[0]

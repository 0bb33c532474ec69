"""Demonstrations: gold programs played in the real environment.

The teacher is the gold path itself. Played against the graph it yields whole
episodes, observations included, in the protocol's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_TAIL_ENTITIES,
    Action,
    ActionResult,
    GraphTools,
    Success,
)
from kbqa.protocols import AgentProtocol, Dialogue
from kbqa.protocols.kg_r1 import write_answer, write_query
from kbqa.trajectory import Hop, Question, Segment


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a demonstration that either the policy or the environment writes."""

    segments: tuple[Segment, ...]
    by_policy: bool


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A gold episode as text.

    Attributes:
        passages: prompt, turns and observations in order.
        names: names of entities that occur in it; a reader may replace them, all alike.
    """

    question: Question
    passages: tuple[Passage, ...]
    names: tuple[str, ...]

    def renamed(self, names: dict[str, str]) -> Demonstration:
        """The same episode about entities with other names; the whole of a name is replaced."""
        if not names:
            return self
        longest_first = sorted(names, key=len, reverse=True)
        pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")

        def rename(segment: Segment) -> Segment:
            return Segment(pattern.sub(lambda match: names[match.group(0)], segment.text), segment.trusted)

        passages = tuple(Passage(tuple(map(rename, p.segments)), p.by_policy) for p in self.passages)
        return Demonstration(self.question, passages, tuple(names.values()))


def demonstrate(
    question: Question, protocol: AgentProtocol, tools: GraphTools, max_turns: int, max_items: int = 20
) -> Demonstration | None:
    """Play the gold path of a question.

    Returns:
        The episode, or None if the path does not lead to exactly the gold answers within
        the budget (a graph that merges namesakes, a hop with too many results).

    Raises:
        ValueError: the question has no gold path or not exactly one topic entity.
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    if not question.path or len(question.topic_entities) != 1:
        raise ValueError(f"question {question.id} has no gold path from one topic entity")
    dialogue = protocol.begin(question, max_turns)
    passages = [Passage(tuple(dialogue.prompt()), by_policy=False)]
    names: dict[str, None] = {question.topic_entities[0]: None}
    frontier = [question.topic_entities[0]]
    for position, hop in enumerate(question.path):
        found: dict[str, None] = {}
        for entity in frontier:
            action = _lookup(entity, hop)
            result = tools.execute(question.kg, [action], graph=question.graph)[0]
            if len(passages) // 2 + 2 > max_turns:
                return None
            # An entity that lacks the relation is part of the gold program, its error too.
            if isinstance(result, Success):
                if result.truncated or len(result.items) > max_items:
                    return None
                found.update(dict.fromkeys(item.label for item in result.items))
            turns_left = max_turns - len(passages) // 2 - 1
            passages.extend(_exchange(dialogue, action, result, question.path[position:], turns_left))
        frontier = list(found)
        names.update(found)
        # A topic that the path comes back to is not what is asked for (MetaQA drops it too).
        frontier = [name for name in frontier if name != question.topic_entities[0]]
    if not frontier or set(frontier) != set(question.answers):
        return None
    passages.append(Passage((Segment(write_answer("", frontier)),), by_policy=True))
    return Demonstration(question, tuple(passages), tuple(names))


def _lookup(entity: str, hop: Hop) -> Action:
    name = GET_HEAD_ENTITIES if hop.inverse else GET_TAIL_ENTITIES
    return Action(name, {"entity": entity, "relation": hop.relation})


def _exchange(
    dialogue: Dialogue, action: Action, result: ActionResult, remaining: Sequence[Hop], turns_left: int
) -> Iterator[Passage]:
    """A turn that looks up, thinking of the hops that remain, and its observation."""
    thought = " then ".join(("of " if hop.inverse else "") + hop.relation for hop in remaining)
    written = write_query(thought, action)
    dialogue.reply(written)
    dialogue.take([result])
    yield Passage((Segment(written),), by_policy=True)
    yield Passage(tuple(dialogue.observation(turns_left)), by_policy=False)

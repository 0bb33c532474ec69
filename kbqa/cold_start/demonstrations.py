"""Demonstrations: gold programs played in the real environment.

The teacher is the gold path itself. Played against the graph it yields whole
episodes, observations included, in the protocol's own words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from kbqa.cold_start.teachers import TEACHERS, Lesson
from kbqa.kg.actions import Action, ActionResult, GraphTools, Success, named
from kbqa.protocols import AgentProtocol, Dialogue
from kbqa.trajectory import Question, Segment


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
        # In a query a name stands percent-encoded, as part of an IRI.
        names = {quote(name, safe=""): quote(other, safe="") for name, other in names.items()} | names
        longest_first = sorted(names, key=len, reverse=True)
        pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")

        def rename(segment: Segment) -> Segment:
            return Segment(pattern.sub(lambda match: names[match.group(0)], segment.text), segment.trusted)

        passages = tuple(Passage(tuple(map(rename, p.segments)), p.by_policy) for p in self.passages)
        return Demonstration(self.question, passages, tuple(names.get(name, name) for name in self.names))


def demonstrate(
    question: Question, protocol: AgentProtocol, tools: GraphTools, max_turns: int, max_items: int = 20
) -> Demonstration | None:
    """Play the gold path of a question, as the teacher of the protocol does it.

    Returns:
        The episode, or None if the path does not lead to exactly the gold answers within
        the budget (a graph that merges namesakes, a hop with too many results).

    Raises:
        ValueError: the question has no gold path or not exactly one topic entity, or the
            protocol has no teacher.
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    if not question.path or len(question.topic_entities) != 1:
        raise ValueError(f"question {question.id} has no gold path from one topic entity")
    if protocol.name not in TEACHERS:
        raise ValueError(f"protocol {protocol.name} has no teacher")
    dialogue = protocol.begin(question, max_turns)
    passages = [Passage(tuple(dialogue.prompt()), by_policy=False)]
    names: dict[str, None] = {question.topic_entities[0]: None}
    lesson = TEACHERS[protocol.name](question, max_items)
    text = next(lesson, None)
    for turn in range(1, max_turns + 1):
        if text is None:
            return None
        passages.append(Passage((Segment(text),), by_policy=True))
        reply = dialogue.reply(text)
        if reply.answers is not None:
            right = {answer.text for answer in reply.answers} == set(question.answers)
            return Demonstration(question, tuple(passages), tuple(names)) if right else None
        results = _execute(reply.actions, dialogue, question, tools)
        shown = (result.items for result in results if isinstance(result, Success))
        names.update((item.label, None) for items in shown for item in named(items))
        passages.append(Passage(tuple(dialogue.observation(max_turns - turn)), by_policy=False))
        text = _go_on(lesson, results)
    return None


def _execute(
    actions: Sequence[Action], dialogue: Dialogue, question: Question, tools: GraphTools
) -> list[ActionResult]:
    """The results of all actions of a turn."""
    results: list[ActionResult] = []
    while actions:
        found = tools.execute(question.kg, actions, graph=question.graph)
        results += found
        actions = dialogue.take(found)
    return results


def _go_on(lesson: Lesson, results: Sequence[ActionResult]) -> str | None:
    """The teacher's next turn, or None where it cannot go on."""
    try:
        return lesson.send(results)
    except StopIteration:
        return None

"""Demonstrations: lessons played in the real environment.

A lesson yields turns: those of a gold program, or those that a model wrote before. Playing it
against the graph gives a whole episode, observations included, in the protocol's own words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from kbqa.answers import em_set
from kbqa.cold_start.teachers import LISTENING, Lesson, teacher_of
from kbqa.gold import Comparison, compare
from kbqa.kg.actions import (
    GET_HEAD_RELATIONS,
    GET_TAIL_RELATIONS,
    SEARCH_TYPES,
    Action,
    ActionResult,
    GraphTools,
    Success,
    named,
)
from kbqa.protocols import AgentProtocol, Dialogue, PredictedAnswer
from kbqa.trajectory import Question, Segment

_SCHEMA_ACTIONS = frozenset({GET_HEAD_RELATIONS, GET_TAIL_RELATIONS, SEARCH_TYPES})


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a demonstration that either the policy or the environment writes.

    Attributes:
        imitated: whether a passage of the policy is to be imitated; otherwise it is only context.
    """

    segments: tuple[Segment, ...]
    by_policy: bool
    imitated: bool = True


@dataclass(frozen=True, slots=True)
class Demonstration:
    """An episode to imitate, as text.

    Attributes:
        passages: prompt, turns and observations in order.
        names: names of entities that occur in it, which `renamed` can replace.
    """

    question: Question
    passages: tuple[Passage, ...]
    names: tuple[str, ...]

    @property
    def turns(self) -> list[str]:
        """The texts of the policy's turns."""
        said = (passage.segments for passage in self.passages if passage.by_policy)
        return ["".join(segment.text for segment in segments) for segments in said]

    def renamed(self, names: dict[str, str]) -> Demonstration:
        """The same episode with other names of entities; only whole names are replaced."""
        if not names:
            return self
        # In a query, a name is percent-encoded as part of an IRI.
        names = {quote(name, safe=""): quote(other, safe="") for name, other in names.items()} | names
        longest_first = sorted(names, key=len, reverse=True)
        pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")

        def rename(segment: Segment) -> Segment:
            return Segment(pattern.sub(lambda match: names[match.group(0)], segment.text), segment.trusted)

        passages = tuple(replace(p, segments=tuple(map(rename, p.segments))) for p in self.passages)
        return Demonstration(self.question, passages, tuple(names.get(name, name) for name in self.names))


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn of an episode that was played.

    Attributes:
        understood: whether it could be parsed as an action or an answer.
        results: of its actions, in order.
        observation: text that the environment appended, "" after an answer.
    """

    text: str
    thought: str
    well_formed: bool
    understood: bool
    actions: tuple[Action, ...] = ()
    results: tuple[ActionResult, ...] = ()
    observation: str = ""


@dataclass(frozen=True, slots=True)
class Played:
    """An episode that was played, to its end or not.

    Attributes:
        answers: None if it ended without an answer.
    """

    demonstration: Demonstration
    turns: tuple[PlayedTurn, ...]
    answers: tuple[PredictedAnswer, ...] | None

    @property
    def question(self) -> Question:
        return self.demonstration.question

    @property
    def prompt(self) -> str:
        return "".join(segment.text for segment in self.demonstration.passages[0].segments)


def play(
    question: Question, protocol: AgentProtocol, tools: GraphTools, lesson: Lesson, max_turns: int
) -> Played:
    """Play the turns of a lesson in the real environment.

    Raises:
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    dialogue = protocol.begin(question, max_turns)
    names = dict.fromkeys(question.topic_entities)
    turns: list[PlayedTurn] = []
    text = next(lesson, None)
    if look := _execute(dialogue.first_look(), dialogue, question, tools):
        names.update(dict.fromkeys(_entities(look)))
        text = _go_on(lesson, tuple(result for _, result in look)) if text == LISTENING else text
    passages = [Passage(tuple(dialogue.prompt()), by_policy=False)]
    while text is not None and len(turns) < max_turns:
        reply, left = dialogue.reply(text), max_turns - len(turns) - 1
        passages.append(Passage((Segment(text),), by_policy=True))
        executed = _execute(reply.actions, dialogue, question, tools)
        results = tuple(result for _, result in executed)
        observation: list[Segment] = []
        if reply.problem is None and reply.answers is None:
            observation = dialogue.observation(left)
        elif reply.problem is not None and not reply.fatal:
            observation = dialogue.complaint(reply.problem, left)
        said = "".join(segment.text for segment in observation)
        actions = tuple(action for action, _ in executed)
        understood = reply.problem is None
        turns.append(PlayedTurn(text, reply.thought, reply.well_formed, understood, actions, results, said))
        if not observation:
            demonstration = Demonstration(question, tuple(passages), tuple(names))
            return Played(demonstration, tuple(turns), reply.answers)
        names.update(dict.fromkeys(_entities(executed)))
        passages.append(Passage(tuple(observation), by_policy=False))
        text = _go_on(lesson, results)
    return Played(Demonstration(question, tuple(passages), tuple(names)), tuple(turns), None)


def prompt_of(question: Question, protocol: AgentProtocol, tools: GraphTools, max_turns: int) -> Passage:
    """What a policy reads before its first turn.

    Raises:
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    dialogue = protocol.begin(question, max_turns)
    _execute(dialogue.first_look(), dialogue, question, tools)
    return Passage(tuple(dialogue.prompt()), by_policy=False)


def recite(turns: Iterable[str]) -> Lesson:
    """A lesson of recorded turns, regardless of their results."""
    for text in turns:  # noqa: UP028  a list takes no results
        yield text


def demonstrate(
    question: Question, protocol: AgentProtocol, tools: GraphTools, max_turns: int, max_items: int = 20
) -> Demonstration | None:
    """Play the gold program of a question, as the teacher of the protocol does it.

    Returns:
        The episode, or None if the program does not lead to exactly the gold answers, by name
        or by id, within the budget (a graph that merges namesakes, a hop with too many
        results), or the dialect cannot express it.

    Raises:
        ValueError: the question has no gold path from one topic entity, form or query, or the
            protocol has no teacher.
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    if not has_program(question):
        raise ValueError(f"question {question.id} has no gold path from one topic entity, form or query")
    if teacher_of(protocol) is None:
        raise ValueError(f"protocol {protocol.name} has no teacher")
    played = play_program(question, protocol, tools, max_turns, max_items)
    return None if played is None else played.demonstration


def play_program(
    question: Question, protocol: AgentProtocol, tools: GraphTools, max_turns: int, max_items: int = 20
) -> Played | None:
    """As `demonstrate`, with the results of all turns; also None if there is no program or teacher."""
    teacher = teacher_of(protocol)
    if not has_program(question) or teacher is None:
        return None
    played = play(question, protocol, tools, teacher(question, max_items), max_turns)
    return played if is_right(played) else None


def has_program(question: Question) -> bool:
    """Whether a question states a gold path from one topic entity, a form or a query."""
    is_path = bool(question.path) and len(question.topic_entities) == 1
    return is_path or bool(question.form or question.sparql)


def is_right(played: Played) -> bool:
    """Whether an episode ended with exactly the gold answers, by name or by id."""
    if played.answers is None:
        return False
    question = played.question
    named_so = ({a.text for a in played.answers}, {id_ for a in played.answers for id_ in a.ids})
    if any(set(gold) in named_so for gold in question.golds):
        return True
    return bool(question.names) and em_set(*compared(played))


def compared(played: Played) -> Comparison:
    """The answers of an episode, beside the gold answers that they come nearest to."""
    given = played.answers or ()
    return compare(played.question, [answer.text for answer in given], [answer.ids for answer in given])


def _execute(
    actions: Sequence[Action], dialogue: Dialogue, question: Question, tools: GraphTools
) -> list[tuple[Action, ActionResult]]:
    """Execute all actions of a turn; returns them with their results."""
    executed: list[tuple[Action, ActionResult]] = []
    while actions:
        found = tools.execute(question.kg, actions, graph=question.graph)
        executed += zip(actions, found, strict=True)
        actions = dialogue.take(found)
    return executed


def _entities(executed: Sequence[tuple[Action, ActionResult]]) -> Iterator[str]:
    """Labels of what was retrieved, except those of relations and types."""
    for action, result in executed:
        if isinstance(result, Success) and action.name not in _SCHEMA_ACTIONS:
            yield from (item.label for item in named(result.items))


def _go_on(lesson: Lesson, results: Sequence[ActionResult]) -> str | None:
    """The lesson's next turn, or None if it has ended."""
    try:
        return lesson.send(results)
    except StopIteration:
        return None

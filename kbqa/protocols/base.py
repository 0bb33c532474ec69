"""The port of agent dialects: a prompt, a parser, and the text of observations.

A protocol is a paper's dialect; a dialogue is one episode in it. The dialogue keeps
the state of the episode: the expressions and queries of earlier turns, and the
entities that observations have shown. One turn goes like this:

    reply = dialogue.reply(text)            # the policy's completion, parsed
    actions = reply.actions
    while actions:                          # in most dialects once
        actions = dialogue.take(graph_tools.execute(kg, actions))
    segments = dialogue.observation()       # what the policy reads next
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from kbqa.kg.actions import Action, ActionResult
from kbqa.trajectory import Question, Segment


@dataclass(frozen=True, slots=True)
class PredictedAnswer:
    """One predicted answer.

    Attributes:
        text: a label, id or literal, as the dialect names its answers.
        ids: the entities of this episode that it stands for; empty if it stands for none.
    """

    text: str
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed completion.

    Exactly one of `actions`, `answers` and `problem` says what it is.

    Attributes:
        thought: the text between the thinking tags, "" if there is none.
        well_formed: whether it is reasoning and one well-formed action or answer (the format reward).
        actions: retrieval actions to execute first.
        answers: the predicted answers, unique, in the order given; the episode ends.
        problem: why it is neither, as a message to the policy.
        fatal: whether a problem ends the episode (Learning-to-Refine).
    """

    thought: str = ""
    well_formed: bool = False
    actions: tuple[Action, ...] = ()
    answers: tuple[PredictedAnswer, ...] | None = None
    problem: str | None = None
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """What a chat model is told before its first turn.

    Attributes:
        system: the dialect, with an example, for a model that never saw it; "" sends no such message.
        user: the question and its entities.
        tools: functions that it may call in place of commands: JSON schemas with `name`.
    """

    system: str
    user: str
    tools: tuple[Mapping[str, Any], ...] = ()


class Dialogue(Protocol):
    """One episode in a dialect."""

    def first_look(self) -> tuple[Action, ...]:
        """Actions that the prompt needs; `take` receives their results before `prompt` is called."""
        return ()

    def prompt(self) -> list[Segment]:
        """The text before the first turn."""
        ...

    def opening(self, *, native_tools: bool) -> Opening:
        """The chat form of the prompt.

        Args:
            native_tools: whether the model can call functions; matters in dialects of function calls.
        """
        ...

    def reply(self, text: str) -> Reply:
        """Parse a completion; never raises."""
        ...

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        """Take the results of the actions last given, in order.

        Returns:
            Actions that the same turn needs next, for instance because they build on these
            results; none when the turn is complete.
        """
        ...

    def observation(self, turns_left: int) -> list[Segment]:
        """The text after a turn with actions. First and last segment are its opening and closing tag.

        Args:
            turns_left: turns that the policy still has; some dialects announce the last one.
        """
        ...

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        """The text after a turn that could not be parsed."""
        ...


def begins_anywhere(protocol: AgentProtocol) -> bool:
    """Whether an episode can begin without topic entities, as a dialect of forms begins at a class."""
    return bool(getattr(protocol, "begins_anywhere", False))


class AnswerKind(StrEnum):
    """By what an agent names the entities that it answers; numbers and dates are always values."""

    IDS = "ids"
    LABELS = "labels"
    EITHER = "either"


def answers_of(protocol: AgentProtocol) -> AnswerKind:
    """By what answers in a dialect name entities."""
    return AnswerKind(getattr(protocol, "answers", AnswerKind.EITHER))


class AgentProtocol(Protocol):
    """One paper's dialect.

    It may have attributes `begins_anywhere` and `answers`; see the functions `begins_anywhere` and
    `answers_of`.
    """

    @property
    def name(self) -> str: ...

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag of the dialect, opening and closing; single tokens of a small policy."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings at which generation ends."""
        ...

    def begin(self, question: Question, max_turns: int) -> Dialogue:
        """An episode about a question."""
        ...

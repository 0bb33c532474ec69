"""Rollouts whose teacher is shown the next gold step (Referenced Rejection Sampling; KBQA-R1, IV-B1).

The hint follows the episode's text only while the teacher reads it. The episode itself never contains
a hint, so nothing has to be removed from it afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kbqa.chat import Conversation
from kbqa.cold_start.demonstrations import Played
from kbqa.cold_start.leaks import HINT_MARK
from kbqa.cold_start.teachers import gold_actions, written
from kbqa.environment import Budget, ChatEpisode, Episode
from kbqa.protocols import AgentProtocol
from kbqa.rollouts import Agent, ChatAgent
from kbqa.trajectory import Question, Segment, Status, Turn

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_SPACE = re.compile(r"\s+")
_TAG = re.compile(r"^<\w+>|</\w+>$")


def commands(played: Played) -> tuple[str, ...]:
    """The steps of a gold episode, without its thoughts and without the answer."""
    return tuple(_command(turn.text) for turn in played.turns if turn.actions)


def reference_actions(question: Question, most: int) -> tuple[str, ...]:
    """The actions of the gold logical form as commands of KBQA-R1's dialect (IV-B1, step 1).

    Nothing is executed: what the form finds does not matter, only that it can be written as actions.

    Args:
        most: maximum number of commands; if there are more actions, some commands have several.
    """
    actions = gold_actions(question)
    turns = min(len(actions), most)
    bounds = [turn * len(actions) // turns for turn in range(turns + 1)] if turns else []
    return tuple(_command(written("", actions[start:end])) for start, end in pairwise(bounds))


def hint(steps: Sequence[str], turns: Sequence[Turn]) -> str:
    """What a teacher is shown after some turns: the next step, or that no step is left.

    A turn counts as all next steps that it contains, or as one if it was executed without an error.
    """
    taken = 0
    for turn in turns:
        said, before = _words(_command(turn.text)), taken
        while taken < len(steps) and _words(_TAG.sub("", steps[taken])) in said:
            taken += 1
        if taken == before and turn.status is Status.OK:
            taken += 1
    if taken >= len(steps):
        return f"\n\n{HINT_MARK} no step is left, so answer now from what the graph has shown.]"
    return (
        f"\n\n{HINT_MARK} the next step is\n{steps[taken]}\n"
        "Reason in your own words why it comes next, from the question and from what the graph has shown so "
        "far, then take it as it stands. Never say that you were given it.]"
    )


class ReferencedChatEpisode(ChatEpisode):
    """A chat episode whose last message carries a hint."""

    def __init__(
        self,
        question: Question,
        protocol: AgentProtocol,
        budget: Budget,
        steps: Sequence[str],
        *,
        native_tools: bool,
    ) -> None:
        super().__init__(question, protocol, budget, native_tools=native_tools)
        self._steps = steps

    @property
    def conversation(self) -> Conversation:
        plain = super().conversation
        *before, last = plain.messages
        hinted = replace(last, text=last.text + hint(self._steps, self.turns))
        return replace(plain, messages=(*before, hinted))


@dataclass(frozen=True, slots=True)
class ReferencedChatAgent(ChatAgent):
    """Plays episodes of messages by the steps of a gold program."""

    steps: tuple[str, ...] = ()

    def begin(self, question: Question) -> ReferencedChatEpisode:
        return ReferencedChatEpisode(
            question, self.protocol, self.budget, self.steps, native_tools=self.native_tools
        )


@dataclass(frozen=True, slots=True)
class ReferencedAgent(Agent):
    """Plays episodes of tokens by the steps of a gold program."""

    steps: tuple[str, ...] = ()

    def read(self, episode: Episode) -> list[int]:
        hinted = [*episode.token_ids, *self.codec.encode([Segment(hint(self.steps, episode.turns))])]
        # At the end of an episode's budget there may be room for a turn, but not for a hint.
        return hinted if len(hinted) < self.budget.max_tokens else episode.token_ids


def _command(text: str) -> str:
    return _THOUGHT.sub("", text, count=1).strip()


def _words(text: str) -> str:
    return _SPACE.sub("", text)

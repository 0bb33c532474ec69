"""What an agent dialect is: a prompt, a parser, and the text of observations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from kbqa.kg.actions import Action, ActionResult
from kbqa.trajectory import Question, Segment


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion, understood.

    Exactly one of `actions`, `answer` and `problem` says what it is.

    Attributes:
        thought: what stood between the thinking tags, "" if nothing did.
        well_formed: reasoning and one well-formed action or answer (the format reward).
        actions: retrieval actions to execute.
        answer: the text between the answer tags, not yet split into answers.
        problem: why it is neither, in words for the policy.
    """

    thought: str = ""
    well_formed: bool = False
    actions: tuple[Action, ...] = ()
    answer: str | None = None
    problem: str | None = None


class AgentProtocol(Protocol):
    """One paper's dialect. It has no state; an episode keeps what must be kept."""

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

    def prompt(self, question: Question, max_turns: int) -> list[Segment]:
        """The text before the first turn."""
        ...

    def parse(self, text: str) -> Reply:
        """Understand a completion; never raises."""
        ...

    def observation(self, actions: Sequence[Action], results: Sequence[ActionResult]) -> list[Segment]:
        """The text after a turn with actions. First and last segment are its opening and closing tag."""
        ...

    def complaint(self, problem: str) -> list[Segment]:
        """The text after a turn that could not be understood."""
        ...

    def split_answer(self, text: str, seen: Collection[str]) -> tuple[str, ...]:
        """Answers as labels, unique, in order.

        Args:
            text: what stood between the answer tags.
            seen: labels that the episode's observations showed; they win over separators
                that happen to stand in a name.
        """
        ...

"""What baselines have in common that follow one relation path from a topic and answer with its end.

A baseline chooses the path before the first turn. It is played and measured like any policy, but without a
language model: one turn follows the path, and one answers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.environment import Budget
from kbqa.environment.play import Play
from kbqa.kg.actions import FOLLOW_PATH, Action, ActionResult, GraphTools, Success
from kbqa.protocols import AgentProtocol, Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.chooser import answers_of, place
from kbqa.rollouts.agent import Sampling
from kbqa.trajectory import Question, Segment, Status, Turn

_SHOWN_ENTITIES = 20
# One turn to follow the path, one to answer with its end; no tokens are read or written.
_BUDGET = Budget(max_turns=2, max_tokens=1, max_turn_tokens=1, max_observation_tokens=1)


class ChosenPath(NamedTuple):
    """A path that a baseline has chosen.

    Attributes:
        topic: where it begins, as an id.
        steps: in the form of `follow_path`.
        thought: why it was chosen, for people who read the episode.
    """

    topic: str
    steps: tuple[str, ...]
    thought: str


class PathDialogue(Dialogue):
    """An episode that follows the path which was chosen before its first turn."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.query = question.text  # what the path is chosen by
        self._answers: tuple[PredictedAnswer, ...] | None = None

    @abstractmethod
    def look(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        """Take the results of the actions last given; returns those that are needed next before choosing."""

    @abstractmethod
    def choose(self) -> ChosenPath | None:
        """The path to follow; None if no path leads away from a topic."""

    def forget(self, topic: str, label: str) -> None:
        """Remove a topic's name from the query, since it does not say what is asked."""
        self.query = without_topic(self.query, topic, label)

    def prompt(self) -> list[Segment]:
        return [Segment(self.query, trusted=False)]

    def opening(self, *, native_tools: bool) -> Opening:
        return Opening("", self.query)

    def reply(self, text: str) -> Reply:
        if self._answers is not None:
            return Reply(well_formed=True, answers=self._answers)
        chosen = self.choose()
        if chosen is None:
            return Reply("no path leads away from the topic", well_formed=True, answers=())
        arguments = {"entity": chosen.topic, "path": list(chosen.steps), "relations": 0}
        self._answers = ()
        return Reply(chosen.thought, well_formed=True, actions=(Action(FOLLOW_PATH, arguments),))

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        if self._answers is None:
            return self.look(results)
        [result] = results
        if isinstance(result, Success):
            self._answers = tuple(answers_of(result.items))
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        names = [answer.text for answer in self._answers or ()]
        rest = f", … ({len(names)} in all)" if len(names) > _SHOWN_ENTITIES else ""
        text = ", ".join(names[:_SHOWN_ENTITIES]) + rest
        return [Segment("<entities>"), Segment(text, trusted=False), Segment("</entities>")]

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        return [Segment(""), Segment("")]  # never read: nothing is misunderstood


def without_topic(text: str, topic: str, label: str) -> str:
    """A question without the name of its topic, which it states by id, by label, or nearly so."""
    named = place(text, (topic, label))
    return text if named is None else " ".join((text[: named[0]] + " " + text[named[1] :]).split())


class PathEpisode(Play):
    """An episode without tokens and without a policy: its turns follow from the chosen path."""

    def say(self) -> None:
        """Play a turn without text: follow the path, or answer with the entities at its end."""
        self._said(Turn(0, 0, (), "", Status.OK), cut=False)

    def _begin(self) -> None:
        pass

    def _tokens(self) -> tuple[int, ...]:
        return ()

    def _keep(self, observation: Sequence[Segment]) -> str:
        return "".join(segment.text for segment in observation)

    @property
    def _full(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class PathPlayer:
    """Plays `PathEpisode`s.

    Attributes:
        baseline: its dialogues are `PathDialogue`s.
    """

    baseline: AgentProtocol
    tools: GraphTools

    def begin(self, question: Question) -> PathEpisode:
        """As `Player.begin`."""
        return PathEpisode(question, self.baseline, _BUDGET)

    def speak(self, episodes: Sequence[PathEpisode], sampling: Sampling) -> None:
        """As `Player.speak`; all runs are the same at any temperature."""
        for episode in episodes:
            episode.say()

"""The state of an episode, however its text is stored: question, dialogue, budget, and turns so far.

It is a state machine without input or output: a rollout asks the policy for a completion and the
graph for results, and passes both in.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbqa.kg.actions import Action, ActionResult, Failure, named
from kbqa.protocols import AgentProtocol, PredictedAnswer
from kbqa.trajectory import (
    ExecutedAction,
    GatedRelation,
    Question,
    Segment,
    Status,
    Trajectory,
    Turn,
)


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of an episode.

    Attributes:
        max_turns: maximum turns, including the answer.
        max_tokens: maximum tokens of the whole episode.
        max_turn_tokens: maximum tokens of a completion.
        max_observation_tokens: maximum tokens of an observation between its tags; the rest is cut.
    """

    max_turns: int
    max_tokens: int
    max_turn_tokens: int
    max_observation_tokens: int


class Play(ABC):
    """An episode: call `observe` as long as there are `actions`, then pass in the next turn, until `done`."""

    def __init__(self, question: Question, protocol: AgentProtocol, budget: Budget) -> None:
        self.question = question
        self.status: Status | None = None
        self.loss = ""  # why it was lost
        self._dialogue = protocol.begin(question, budget.max_turns)
        self.actions: tuple[Action, ...] = self._dialogue.first_look()
        self._budget = budget
        self._turns: list[Turn] = []
        self._executed: list[ExecutedAction] = []  # of the current turn
        self._results: list[tuple[ActionResult, ...]] = []  # of each turn
        self._answers: tuple[PredictedAnswer, ...] = ()
        self._turn_began = time.perf_counter()

    @property
    def done(self) -> bool:
        return self.status is not None

    @property
    def turns(self) -> Sequence[Turn]:
        return self._turns

    @property
    def results(self) -> tuple[ActionResult, ...]:
        """The results of the last turn's actions, in order."""
        return self._results[-1] if self._results else ()

    @property
    def answers(self) -> tuple[PredictedAnswer, ...]:
        return self._answers

    def observe(self, results: Sequence[ActionResult]) -> None:
        """Take the results of `actions`, in order; a turn may ask for further actions."""
        if not self.actions:
            return
        if not self._turns:
            self.actions = self._dialogue.take(results)
            if not self.actions:
                self._begin()
            return
        self._executed.extend(map(_executed, self.actions, results))
        self._results[-1] += tuple(results)
        self.actions = self._dialogue.take(results)
        if self.actions:
            return
        failed = any(action.code is not None for action in self._executed)
        self._finish_turn(Status.ACTION_ERROR if failed else Status.OK)
        self._show(self._dialogue.observation(self._turns_left))

    def expire(self) -> None:
        """End the episode because its time is over."""
        self.status = Status.TIMED_OUT

    def lose(self, reason: str) -> None:
        """End the episode because the engine failed to complete its turn."""
        self.status, self.loss = Status.LOST, reason

    def trajectory(self) -> Trajectory:
        """The finished episode.

        Raises:
            ValueError: the episode still runs.
        """
        if self.status is None:
            raise ValueError("the episode still runs")
        texts = tuple(answer.text for answer in self._answers)
        ids = tuple(answer.ids for answer in self._answers)
        return Trajectory(self._tokens(), tuple(self._turns), self.status, texts, ids)

    @abstractmethod
    def _begin(self) -> None:
        """Store what the policy reads before its first turn."""

    @abstractmethod
    def _tokens(self) -> tuple[int, ...]:
        """The tokens of the trajectory."""

    @abstractmethod
    def _keep(self, observation: Sequence[Segment]) -> str:
        """Append an observation, cut to its budget except for the closing tag; returns its text."""

    @property
    @abstractmethod
    def _full(self) -> bool:
        """Whether the budget has no token left for another turn."""

    def _said(self, turn: Turn, *, cut: bool) -> None:
        """Parse what the policy wrote.

        Args:
            turn: the turn, as far as it is known before parsing.
            cut: whether the completion ended at its budget.
        """
        reply = self._dialogue.reply(turn.text)
        self._turns.append(replace(turn, thought=reply.thought, well_formed=reply.well_formed))
        self.actions, self._executed = reply.actions, []
        self._results.append(())
        if reply.answers is not None:
            self._answers = reply.answers
            self._finish_turn(Status.ANSWERED)
            self.status = Status.ANSWERED
        elif reply.problem is not None:
            failed = Status.OUT_OF_TOKENS if cut else Status.UNPARSABLE
            self._finish_turn(failed)
            if reply.fatal:
                self.status = failed
            else:
                self._show(self._dialogue.complaint(reply.problem, self._turns_left))
        if not self.done and len(self._turns) >= self._budget.max_turns:
            self.status, self.actions = Status.OUT_OF_TURNS, ()

    @property
    def _turns_left(self) -> int:
        return self._budget.max_turns - len(self._turns)

    def _finish_turn(self, status: Status) -> None:
        now = time.perf_counter()
        elapsed_ms, self._turn_began = (now - self._turn_began) * 1000, now
        self._turns[-1] = replace(
            self._turns[-1], status=status, actions=tuple(self._executed), elapsed_ms=elapsed_ms
        )

    def _show(self, observation: Sequence[Segment]) -> None:
        self._turns[-1] = replace(self._turns[-1], observation=self._keep(observation))
        self._check_room()

    def _check_room(self) -> None:
        if not self.done and self._full:
            self.status = Status.OUT_OF_TOKENS


def _executed(action: Action, result: ActionResult) -> ExecutedAction:
    arguments = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in action.arguments.items()
    }
    details, gated = result.details, tuple(_gated(result.details))
    if isinstance(result, Failure):
        code, kind = result.code.value, result.kind.value
        return ExecutedAction(action.name, arguments, code, kind=kind, gated=gated, details=details)
    items = list(named(result.items))
    ids, labels = tuple(item.id for item in items), tuple(item.label for item in items)
    return ExecutedAction(action.name, arguments, None, ids, labels, gated=gated, details=details)


def _gated(details: Mapping[str, Any]) -> Iterator[GatedRelation]:
    """The gate's verdicts in the details of a result; see `kbqa.kg.ranking.gating.Verdict`."""
    for verdict in (details, *details.get("relations", ())):
        if "tier" in verdict:
            # A rejected relation comes with its neighbours, best first.
            best = verdict["relation"] if "relation" in verdict else verdict["candidates"][0]
            yield GatedRelation(best["id"], float(best["score"]), str(verdict["tier"]))

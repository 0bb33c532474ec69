"""One episode: a question, a protocol, budgets, and the tokens so far.

The episode is a state machine without input or output of its own: a rollout asks
the policy for a completion and the graph for results, and hands both in.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbqa.answers import normalise
from kbqa.kg.actions import Action, ActionResult, Failure
from kbqa.policies.base import Codec, Completion, FinishReason
from kbqa.protocols import AgentProtocol
from kbqa.trajectory import ExecutedAction, Question, Segment, Status, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of an episode.

    Attributes:
        max_turns: most turns, the answer's included.
        max_tokens: most tokens of the whole episode.
        max_turn_tokens: most tokens of a completion.
        max_observation_tokens: longer observations are cut and closed again.
    """

    max_turns: int
    max_tokens: int
    max_turn_tokens: int
    max_observation_tokens: int


class Episode:
    """Play with `act` and `observe` in turn until `done`."""

    def __init__(self, question: Question, protocol: AgentProtocol, codec: Codec, budget: Budget) -> None:
        self.question = question
        self.actions: tuple[Action, ...] = ()
        self.status: Status | None = None
        self._protocol, self._codec, self._budget = protocol, codec, budget
        self._turns: list[Turn] = []
        self._answers: tuple[str, ...] = ()
        self._labels: dict[str, list[str]] = {}  # label -> ids that observations showed under it
        self.token_ids = codec.encode(protocol.prompt(question, budget.max_turns))
        self._turn_began = time.perf_counter()
        self._check_room()

    @property
    def done(self) -> bool:
        return self.status is not None

    @property
    def turns(self) -> Sequence[Turn]:
        return self._turns

    def act(self, completion: Completion) -> None:
        """Take the policy's completion of `token_ids`.

        Afterwards either the episode is done, or `observe` has to be called with one
        result for each of `actions` (none, if the completion could not be understood).
        """
        start = len(self.token_ids)
        self.token_ids.extend(completion.token_ids)
        text = self._codec.decode(completion.token_ids)
        reply = self._protocol.parse(text)
        self._turns.append(
            Turn(
                start=start,
                end=len(self.token_ids),
                logprobs=completion.logprobs,
                text=text,
                status=Status.OK,
                thought=reply.thought,
                well_formed=reply.well_formed,
                policy_version=completion.policy_version,
            )
        )
        self.actions = reply.actions
        if reply.answer is not None:
            self._answers = self._protocol.split_answer(reply.answer, self._labels)
            self._finish_turn(status=Status.ANSWERED)
            self.status = Status.ANSWERED
        elif reply.problem is not None:
            cut = completion.finish_reason is FinishReason.LENGTH
            self._finish_turn(status=Status.OUT_OF_TOKENS if cut else Status.UNPARSABLE)
            self._append(self._protocol.complaint(reply.problem))
        if not self.done and len(self._turns) >= self._budget.max_turns:
            self.status, self.actions = Status.OUT_OF_TURNS, ()

    def observe(self, results: Sequence[ActionResult]) -> None:
        """Take the results of `actions`, in order."""
        if not self.actions:
            return
        executed = []
        for action, result in zip(self.actions, results, strict=True):
            arguments = {key: str(value) for key, value in action.arguments.items()}
            if isinstance(result, Failure):
                executed.append(ExecutedAction(action.name, arguments, code=result.code.value))
                continue
            for item in result.items:
                self._labels.setdefault(item.label, []).append(item.id)
            ids = tuple(item.id for item in result.items)
            labels = tuple(item.label for item in result.items)
            executed.append(ExecutedAction(action.name, arguments, items=ids, labels=labels))
        failed = any(action.code is not None for action in executed)
        segments = self._protocol.observation(self.actions, results)
        self._finish_turn(status=Status.ACTION_ERROR if failed else Status.OK, actions=tuple(executed))
        self._append(segments)
        self.actions = ()

    def expire(self) -> None:
        """End the episode because its time is over."""
        self.status = Status.TIMED_OUT

    def trajectory(self) -> Trajectory:
        """The finished episode.

        Raises:
            ValueError: the episode still runs.
        """
        if self.status is None:
            raise ValueError("the episode still runs")
        by_name: dict[str, list[str]] = {}
        for label, ids in self._labels.items():
            by_name.setdefault(normalise(label), []).extend(ids)
        resolved = tuple(tuple(dict.fromkeys(by_name.get(normalise(a), ()))) for a in self._answers)
        return Trajectory(tuple(self.token_ids), tuple(self._turns), self.status, self._answers, resolved)

    def _finish_turn(self, status: Status, actions: tuple[ExecutedAction, ...] = ()) -> None:
        now = time.perf_counter()
        elapsed_ms, self._turn_began = (now - self._turn_began) * 1000, now
        self._turns[-1] = replace(self._turns[-1], status=status, actions=actions, elapsed_ms=elapsed_ms)

    def _append(self, segments: list[Segment]) -> None:
        """Append an observation, cut to its budget with the closing tag kept."""
        opening, *body, closing = segments
        inner = self._codec.encode(body)[: self._budget.max_observation_tokens]
        ids = [*self._codec.encode([opening]), *inner, *self._codec.encode([closing])]
        self.token_ids.extend(ids)
        self._turns[-1] = replace(self._turns[-1], observation=self._codec.decode(ids))
        self._check_room()

    def _check_room(self) -> None:
        if not self.done and len(self.token_ids) >= self._budget.max_tokens:
            self.status = Status.OUT_OF_TOKENS

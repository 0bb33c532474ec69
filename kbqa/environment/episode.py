"""An episode of tokens: exactly the ids that the policy reads and writes."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from kbqa.environment.layout import opening_ids, shown_ids
from kbqa.environment.play import Budget, Play
from kbqa.policies.base import Codec, Completion, FinishReason
from kbqa.protocols import AgentProtocol
from kbqa.trajectory import Question, Segment, Status, Turn


class Episode(Play):
    """An episode of tokens: call `observe` and `act` in turn until `done`."""

    def __init__(self, question: Question, protocol: AgentProtocol, codec: Codec, budget: Budget) -> None:
        super().__init__(question, protocol, budget)
        self._codec = codec
        self.token_ids: list[int] = []
        if not self.actions:
            self._begin()

    def fork(self) -> Episode:
        """A copy of the episode that continues independently."""
        twin = copy.copy(self)
        # The question and the results never change, so both copies may refer to them.
        told = (self.question, *(result for results in self._results for result in results))
        twin._dialogue = copy.deepcopy(self._dialogue, {id(value): value for value in told})
        twin.token_ids = self.token_ids.copy()
        twin._turns, twin._results = self._turns.copy(), self._results.copy()
        twin._executed = self._executed.copy()
        return twin

    def act(self, completion: Completion) -> None:
        """Take the policy's completion of `token_ids`.

        Afterwards either the episode is done, or `observe` must be called as long as there are
        `actions`, with one result for each. There are none if the completion could not be parsed.
        """
        start = len(self.token_ids)
        self.token_ids.extend(completion.token_ids)
        turn = Turn(
            start=start,
            end=len(self.token_ids),
            logprobs=completion.logprobs,
            text=self._codec.decode(completion.token_ids).removesuffix(self._codec.frame.end),
            status=Status.OK,
            policy_version=completion.policy_version,
        )
        self._said(turn, cut=completion.finish_reason is FinishReason.LENGTH)

    def _begin(self) -> None:
        self.token_ids = opening_ids(self._codec, self._dialogue.prompt())
        self._check_room()

    def _tokens(self) -> tuple[int, ...]:
        return tuple(self.token_ids)

    def _keep(self, observation: Sequence[Segment]) -> str:
        turn = self.token_ids[self._turns[-1].start : self._turns[-1].end]
        shown = shown_ids(self._codec, turn, observation, self._budget.max_observation_tokens)
        self.token_ids.extend(shown.token_ids)
        return self._codec.decode(shown.observation)

    @property
    def _full(self) -> bool:
        return len(self.token_ids) >= self._budget.max_tokens

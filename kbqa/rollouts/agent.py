"""Players of episodes, which play a turn of many episodes at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from kbqa.chat import ChatParams
from kbqa.environment import Budget, ChatEpisode, Episode, Play
from kbqa.errors import PolicyUnavailableError
from kbqa.kg.actions import GraphTools
from kbqa.policies.base import (
    ChatPolicy,
    Codec,
    Completion,
    FinishReason,
    Policy,
    RankingPolicy,
    SamplingParams,
    Truncation,
)
from kbqa.protocols import AgentProtocol
from kbqa.trajectory import Question, Status

_TURN_STRIDE = 7919  # keeps the streams of neighbouring turns and samples apart

EpisodeT = TypeVar("EpisodeT", bound=Play)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a turn is sampled.

    Attributes:
        turn: number of the turn; with a seed, each turn has its own random stream.
        deadline: `time.monotonic()` after which the policy stops.
        cancelled: once set, the policy stops.
    """

    turn: int
    temperature: float
    seed: int | None = None
    deadline: float | None = None
    cancelled: threading.Event | None = None

    @property
    def stream(self) -> int | None:
        """The seed of this turn."""
        return None if self.seed is None else self.seed + _TURN_STRIDE * self.turn


class Player(Protocol[EpisodeT]):
    """Plays episodes of one kind."""

    @property
    def tools(self) -> GraphTools: ...

    def begin(self, question: Question) -> EpisodeT:
        """An episode about a question."""
        ...

    def speak(self, episodes: Sequence[EpisodeT], sampling: Sampling) -> None:
        """Let the policy write a turn in each of several running episodes.

        Raises:
            PolicyUnavailableError: the policy does not answer.
        """
        ...


class Branches(NamedTuple, Generic[EpisodeT]):
    """How an episode may go on.

    Attributes:
        copies: of the episode, each with another turn, the likeliest first; made as they are asked for. There
            are none if the turns do not come in time.
        declining: the probability of the turns that decline all options.
    """

    copies: Iterator[EpisodeT]
    declining: float


@runtime_checkable
class Searcher(Player[EpisodeT], Protocol[EpisodeT]):
    """A player that can be asked for other turns than one, for a beam search.

    Attributes:
        beam: episodes of a question that are searched side by side when it is answered; 1 if none are.
    """

    @property
    def beam(self) -> int: ...

    def branch(self, episodes: Sequence[EpisodeT], sampling: Sampling) -> list[Branches[EpisodeT]]:
        """Continue each of several running episodes by all turns that the policy may write.

        Raises:
            PolicyUnavailableError: the policy does not answer.
        """
        ...

    def rate(self, episodes: Sequence[EpisodeT]) -> list[float]:
        """As `RankingPolicy.rated`."""
        ...


@dataclass(frozen=True, slots=True)
class Agent:
    """Everything that an episode of tokens needs, except the question.

    Attributes:
        truncation: truncation of the policy's distributions.
        beam: as that of a `Searcher`; above 1, the policy has to be a `RankingPolicy`.
    """

    policy: Policy
    codec: Codec
    protocol: AgentProtocol
    tools: GraphTools
    budget: Budget
    truncation: Truncation = Truncation()
    beam: int = 1

    def begin(self, question: Question) -> Episode:
        """As `Player.begin`."""
        return Episode(question, self.protocol, self.codec, self.budget)

    def read(self, episode: Episode) -> Sequence[int]:
        """The tokens that the policy continues."""
        return episode.token_ids

    def speak(self, episodes: Sequence[Episode], sampling: Sampling) -> None:
        """As `Player.speak`, by one call of the policy; an episode whose completion is late or lost ends."""
        completions = self.policy.generate(
            [self.read(episode) for episode in episodes],
            SamplingParams(
                max_tokens=self.budget.max_turn_tokens,
                max_total_tokens=self.budget.max_tokens,
                temperature=sampling.temperature,
                stop=(*self.protocol.stop, *filter(None, [self.codec.frame.end])),
                seed=sampling.stream,
                truncation=self.truncation,
                affinity=episodes[0].question.id if episodes else "",
            ),
            deadline=sampling.deadline,
            cancelled=sampling.cancelled,
        )
        for episode, completion in zip(episodes, completions, strict=True):
            if completion.finish_reason is FinishReason.ABORTED:
                episode.expire()
            elif completion.finish_reason is FinishReason.LOST:
                episode.lose(completion.detail)
            else:
                episode.act(completion)

    def branch(self, episodes: Sequence[Episode], sampling: Sampling) -> list[Branches[Episode]]:
        """As `Searcher.branch`."""
        assert isinstance(self.policy, RankingPolicy)
        ranked = self.policy.ranked(
            [self.read(episode) for episode in episodes],
            deadline=sampling.deadline,
            cancelled=sampling.cancelled,
        )
        return [
            Branches(_copies(episode, ranking.completions), ranking.declining)
            for episode, ranking in zip(episodes, ranked, strict=True)
        ]

    def rate(self, episodes: Sequence[Episode]) -> list[float]:
        """As `Searcher.rate`."""
        assert isinstance(self.policy, RankingPolicy)
        return self.policy.rated([self.read(episode) for episode in episodes])


def _copies(episode: Episode, completions: Sequence[Completion]) -> Iterator[Episode]:
    for completion in completions:
        copy = episode.fork()
        copy.act(completion)
        yield copy


@dataclass(frozen=True, slots=True)
class ChatAgent:
    """Everything that an episode of messages needs, except the question.

    Attributes:
        native_tools: whether the model uses native function calls in a dialect of function calls.
    """

    policy: ChatPolicy
    protocol: AgentProtocol
    tools: GraphTools
    budget: Budget
    native_tools: bool = True

    def begin(self, question: Question) -> ChatEpisode:
        """As `Player.begin`."""
        return ChatEpisode(question, self.protocol, self.budget, native_tools=self.native_tools)

    def speak(self, episodes: Sequence[ChatEpisode], sampling: Sampling) -> None:
        """As `Player.speak`; an episode whose reply does not come in time ends.

        Raises:
            PolicyUnavailableError, PolicyRefusedError: as `ChatPolicy.reply`.
        """
        params = ChatParams(
            max_tokens=self.budget.max_turn_tokens,
            temperature=sampling.temperature,
            stop=self.protocol.stop,
            seed=sampling.stream,
        )
        replies = self.policy.reply(
            [episode.conversation for episode in episodes],
            params,
            deadline=sampling.deadline,
            cancelled=sampling.cancelled,
        )
        for episode, reply in zip(episodes, replies, strict=True):
            if reply is None:
                episode.expire()
            else:
                episode.act(reply)


def consult(tools: GraphTools, question: Question, episodes: Sequence[Play]) -> None:
    """Execute the actions of the episodes' turns on the graph."""
    # Actions of a turn may need the results of earlier ones, so they are executed in batches.
    while waiting := [episode for episode in episodes if episode.actions]:
        batch = [action for episode in waiting for action in episode.actions]
        results = iter(tools.execute(question.kg, batch, graph=question.graph))
        for episode in waiting:
            episode.observe([next(results) for _ in episode.actions])


def require_one(episodes: Sequence[Play]) -> None:
    """Make sure that the engine has not lost all episodes.

    Raises:
        PolicyUnavailableError: it has.
    """
    if episodes and all(episode.status is Status.LOST for episode in episodes):
        raise PolicyUnavailableError(episodes[0].loss)

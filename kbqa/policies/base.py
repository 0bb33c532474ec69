"""The policy port: token ids in, token ids and log-probabilities out.

Also the port of chat models, which exchange text only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from kbqa.chat import ChatParams, ChatReply, Conversation
from kbqa.policies.frame import Frame
from kbqa.trajectory import Segment


class FinishReason(StrEnum):
    """Why a completion ended: at a stop string, at its token limit, because the caller aborted it, or because
    the engine failed to complete this one, which says nothing about others."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Truncation:
    """Which tokens can be drawn: the k most probable and, of those, the nucleus with probability mass p.

    The temperature is applied first. All other tokens get probability 0; the rest is renormalised.

    Attributes:
        top_p: 1 keeps all.
        top_k: None keeps all.
    """

    top_p: float = 1.0
    top_k: int | None = None

    @property
    def cuts(self) -> bool:
        """Whether it excludes any token."""
        return self.top_p < 1 or self.top_k is not None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample.

    Attributes:
        max_tokens: maximum tokens of a completion.
        max_total_tokens: maximum tokens of a prompt and its completion together.
        temperature: 0 takes the most probable token.
        stop: a completion ends with the first of these strings that it contains.
        seed: makes a call repeatable, whatever else the engine does meanwhile.
        truncation: ignored at temperature 0.
        affinity: names what begins alike, such as the episodes of one question. Of several engines, the same
            one gets it each time, because that one has computed its prefix.
    """

    max_tokens: int
    max_total_tokens: int
    temperature: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    truncation: Truncation = Truncation()
    affinity: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """What the policy wrote after a prompt.

    Attributes:
        token_ids: the sampled tokens, including those of the stop string.
        logprobs: log-probability of each token under the distribution that it was drawn from (that is,
            after temperature and truncation, renormalised); at temperature 0, under temperature 1.
        policy_version: full id of the version that wrote it, or that began it, if the engine changed its
            weights during the completion.
        detail: why it was lost.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    policy_version: str
    detail: str = ""


class Policy(Protocol):
    """Anything that continues token sequences."""

    @property
    def max_length(self) -> int:
        """Maximum tokens of prompt and completion together."""
        ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        """Continue each prompt; safe to call from several threads.

        Args:
            deadline: `time.monotonic()` at which unfinished completions are aborted; the engine stops
                computing them within a second.
            cancelled: once set, aborts completions in the same way.

        Returns:
            The completion of each prompt; it may be empty if it was aborted, and is if it was lost.

        Raises:
            PolicyUnavailableError: the engine can compute nothing.
            ValueError: a prompt leaves no room for a completion.
        """
        ...


class Ranking(NamedTuple):
    """What a policy thinks of the completions of a prompt.

    Attributes:
        completions: all of them, the likeliest first, with log-probabilities under temperature 1; none if
            they were aborted.
        declining: the probability of those that decline all options.
    """

    completions: Sequence[Completion]
    declining: float = 0.0


@runtime_checkable
class RankingPolicy(Policy, Protocol):
    """A policy whose completions are one token, of a few that are possible: it can rank them."""

    def ranked(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Ranking]:
        """Rank the completions of each prompt.

        Args:
            deadline, cancelled: as for `generate`.

        Raises:
            PolicyUnavailableError, ValueError: as `generate`.
        """
        ...

    def rated(self, episodes: Sequence[Sequence[int]]) -> list[float]:
        """How well the whole of each ended episode suits its question, in nats.

        To be added to its log-probability, in which each choice was made without knowing the next.

        Args:
            episodes: the tokens of each.

        Returns:
            A rating of each; 0 for all if the policy has no re-ranker.

        Raises:
            PolicyUnavailableError: as `generate`.
        """
        ...


def is_unwanted(deadline: float | None, cancelled: threading.Event | None) -> bool:
    """Whether nobody waits for a call's result any more: its deadline has passed, or it was cancelled.

    Args:
        deadline: as for `Policy.generate`.
    """
    late = deadline is not None and time.monotonic() > deadline
    return late or (cancelled is not None and cancelled.is_set())


class Codec(Protocol):
    """The part of a tokenizer that an environment needs."""

    @property
    def frame(self) -> Frame:
        """The texts that its model expects around the messages of an episode."""
        ...

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        """Token ids of the segments, in order; only trusted segments may yield tag tokens."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, tags included."""
        ...


class ChatPolicy(Protocol):
    """A model that exchanges text only; it plays episodes, and is never trained."""

    @property
    def name(self) -> str: ...

    def reply(
        self,
        conversations: Sequence[Conversation],
        params: ChatParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[ChatReply | None]:
        """Reply to each conversation; safe to call from several threads.

        Args:
            deadline: `time.monotonic()` after which replies are no longer waited for.
            cancelled: once set, replies are no longer waited for.

        Returns:
            The replies; None for a conversation without one by then.

        Raises:
            PolicyUnavailableError: the endpoint does not answer.
            PolicyRefusedError: the endpoint refuses the request.
        """
        ...

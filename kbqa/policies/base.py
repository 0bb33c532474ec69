"""The policy port: token ids in, token ids and log-probabilities out.

Beside it the port of models that are known by their text alone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kbqa.chat import ChatParams, ChatReply, Conversation
from kbqa.policies.frame import Frame
from kbqa.trajectory import Segment


class FinishReason(StrEnum):
    """Why a completion ended: a stop string, its most tokens, or that nobody wanted more of it."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Truncation:
    """Which tokens may be drawn at all: the k likeliest, and of those the nucleus that holds p of their mass.

    The temperature comes first. What is not kept has no probability, the rest is renormalised.

    Attributes:
        top_p: 1 keeps all.
        top_k: None keeps all.
    """

    top_p: float = 1.0
    top_k: int | None = None

    @property
    def cuts(self) -> bool:
        """Whether it leaves anything out."""
        return self.top_p < 1 or self.top_k is not None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample.

    Attributes:
        max_tokens: most tokens of a completion.
        max_total_tokens: most tokens of a prompt and its completion together.
        temperature: 0 takes the most probable token.
        stop: a completion ends with the first of these that it contains.
        seed: makes a call repeatable, whatever else the engine does meanwhile.
        truncation: at temperature 0 it means nothing.
    """

    max_tokens: int
    max_total_tokens: int
    temperature: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    truncation: Truncation = Truncation()


@dataclass(frozen=True, slots=True)
class Completion:
    """What the policy wrote after a prompt.

    Attributes:
        token_ids: the sampled tokens, the stop string's included.
        logprobs: of each token under the distribution that it was drawn from (that is, after
            temperature and truncation, renormalised); at temperature 0 under temperature 1.
        policy_version: full id of the version that wrote it; of the one that began it, where an
            engine changes its weights in the midst of a completion.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    policy_version: str


class Policy(Protocol):
    """Anything that continues token sequences."""

    @property
    def max_length(self) -> int:
        """Most tokens of prompt and completion together."""
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
            deadline: `time.monotonic()` after which completions that are not finished are aborted:
                the engine computes no more of them, within a second.
            cancelled: likewise, once it is set.

        Returns:
            Of each prompt what was written; perhaps nothing, if it was aborted.

        Raises:
            PolicyUnavailableError: the engine does not answer.
            ValueError: a prompt leaves no room for a completion.
        """
        ...


class Codec(Protocol):
    """A tokenizer as far as an environment needs it."""

    @property
    def frame(self) -> Frame:
        """What its model wants around the messages of an episode."""
        ...

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        """Token ids of the segments in turn; only trusted ones may yield tag tokens."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, tags included."""
        ...


class ChatPolicy(Protocol):
    """A model that is known by its text alone; it plays, and is never trained."""

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
            cancelled: likewise, once it is set.

        Returns:
            None for a conversation without a reply by then.

        Raises:
            PolicyUnavailableError: the endpoint does not answer.
            PolicyRefusedError: it refuses requests.
        """
        ...

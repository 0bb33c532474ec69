"""A version's probe: a few tokens with their log-probabilities, with which an engine is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Probe:
    """A few tokens and their log-probabilities under the trainer's model.

    Attributes:
        token_ids: a prompt and its greedy continuation, length T. Where a policy is confident, rounding
            to bf16 has the least effect and wrong weights have the greatest.
        logprobs: of the continuation's tokens, each given all tokens before it, at temperature 1.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def gap(self, logprobs: Sequence[float]) -> float:
        """Mean absolute difference from an engine's log-probabilities of the same tokens.

        Raises:
            ValueError: the engine gave more or fewer of them.
        """
        return fmean(abs(mine - its) for mine, its in zip(self.logprobs, logprobs, strict=True))

"""A few tokens of which a version says how likely they are, so that an engine can be held to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Probe:
    """What the trainer's own model makes of a few tokens.

    Attributes:
        token_ids: a prompt and its greedy continuation, length T. Where a policy is sure, the
            rounding of bf16 hardly shows, and wrong weights show most.
        logprobs: of the continuation's tokens, each given all before it, at temperature 1.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def gap(self, logprobs: Sequence[float]) -> float:
        """Mean absolute difference to what an engine computed for the same tokens.

        Raises:
            ValueError: they are not as many.
        """
        return fmean(abs(mine - its) for mine, its in zip(self.logprobs, logprobs, strict=True))

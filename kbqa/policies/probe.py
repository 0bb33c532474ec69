"""A version's probe: a short text with its tokens' log-probabilities, with which an engine is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

Precision = Literal["bfloat16", "float32"]

# Mean absolute differences that engines of each precision are always allowed.
_ALLOWED: dict[Precision, float] = {"bfloat16": 1e-2, "float32": 1e-3}
# An engine rounds elsewhere than the trainer's measurement did, and more often. Of SmolLM2-135M in vLLM on a
# CPU, 256 tokens differ by 1.2 times the expectation at most, and by 3.8 times it at least if every weight is
# off by 2 % of a standard deviation.
_MARGIN = 2.5


@dataclass(frozen=True, slots=True)
class Probe:
    """A short text and the log-probabilities of its tokens under the trainer's model.

    Attributes:
        token_ids: the text, length T.
        logprobs: of its last tokens, each given all tokens before it, at temperature 1 and in fp32.
        rounding: the mean absolute difference of these to be expected of an engine that computes in bf16, as
            the trainer has measured it; 0 where it was not measured.
        weights: precision of the weights in the version's files.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    rounding: float = 0.0
    weights: Precision = "float32"

    def gap(self, logprobs: Sequence[float]) -> float:
        """Mean absolute difference from an engine's log-probabilities of the same tokens.

        Raises:
            ValueError: the engine gave more or fewer of them.
        """
        return fmean(abs(mine - its) for mine, its in zip(self.logprobs, logprobs, strict=True))

    def largest_gap(self, precision: Precision) -> float:
        """The largest gap of an engine that holds this version and computes in `precision`."""
        if precision == self.weights == "float32":
            return _ALLOWED["float32"]
        return max(_ALLOWED["bfloat16"], _MARGIN * self.rounding)

"""Advantages relative to the group: the difference of a return from the group's mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, stdev
from typing import Literal

# Smaller differences between returns are rounding errors.
MIN_SPREAD = 1e-6

Deviation = Literal["population", "sample", "none"]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The normalisation of returns: A = (R - mean) / (deviation + epsilon).

    Attributes:
        deviation: of the population, of a sample (divided by N - 1, the default of torch),
            or none, so that A = R - mean (KBQA-R1, Eq. 4).
        bound: advantages are clamped to [-bound, bound] (ISP-KGR's released code: 10).
    """

    deviation: Deviation = "population"
    epsilon: float = 1e-6
    bound: float | None = None

    def advantages(self, returns: Sequence[float]) -> list[float]:
        """One advantage for each return of a group."""
        mean = fmean(returns)
        scale = self._scale(returns, mean)
        centred = [(value - mean) / scale for value in returns]
        if self.bound is None:
            return centred
        return [max(-self.bound, min(self.bound, value)) for value in centred]

    def _scale(self, returns: Sequence[float], mean: float) -> float:
        if self.deviation == "none":
            return 1.0
        if self.deviation == "population":
            return pstdev(returns, mean) + self.epsilon
        return (stdev(returns, mean) if len(returns) > 1 else 0.0) + self.epsilon


def has_spread(returns: Sequence[float]) -> bool:
    """Whether a group carries any signal: whether its returns differ.

    The spread decides, not the mean, since rewards such as F1 are rarely all 0 or all 1.
    """
    return max(returns) - min(returns) > MIN_SPREAD

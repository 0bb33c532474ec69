"""Advantages relative to the group: one value for a whole trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

EPSILON = 1e-6


def has_spread(returns: Sequence[float]) -> bool:
    """Whether a group carries any signal. Asked of the spread, not of the mean:
    rewards such as F1 are rarely all 0 or all 1 (decisions: dropped by spread)."""
    return max(returns) - min(returns) > EPSILON


def group_advantages(returns: Sequence[float], *, by_deviation: bool = True) -> list[float]:
    """GRPO: A_n = (R_n - mean) / (std + epsilon), the deviation being the population's.

    Args:
        returns: one per trajectory of the group.
        by_deviation: False leaves the division out (mean only, KBQA-R1 Eq. 4).
    """
    mean = fmean(returns)
    scale = pstdev(returns, mean) + EPSILON if by_deviation else 1.0
    return [(value - mean) / scale for value in returns]

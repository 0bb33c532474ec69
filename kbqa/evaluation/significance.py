"""Significance of measured differences: intervals by bootstrap and by Student's t, and McNemar's test.

A policy mostly answers paraphrases of a question alike, so that a figure over paraphrases is less certain
than over the same number of unrelated questions. The bootstrap therefore draws whole groups of paraphrases
(a cluster bootstrap: Davison and Hinkley 1997, section 3.8). McNemar's test pairs single questions and
ignores groups; if groups are large, rely on the interval of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 2000
_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)  # from 1 degree on
_EXACT_BELOW = 25  # discordant pairs; with more, the chi-squared approximation is good


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def bootstrap(
    values: Sequence[float],
    weights: Sequence[float] | None = None,
    *,
    groups: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    resamples: int = _RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Percentile interval of sum(values) / sum(weights) over questions (Efron 1979).

    Args:
        values: of each question.
        weights: of each question; 1 if None, so that the ratio is the mean.
        groups: the group of each question; whole groups are drawn. If None, each question is its own
            group.
        seed: the same seed gives the same interval.

    Returns:
        The interval, or None if the ratio is undefined because the weights sum to 0.
    """
    pairs = np.column_stack([values, np.ones(len(values)) if weights is None else weights])
    if not len(pairs) or pairs[:, 1].sum() == 0:
        return None
    if groups is not None:
        pairs = _totals(pairs, groups)
    # Instead of questions with replacement, draw how often each distinct pair occurs: few are distinct.
    distinct, counts = np.unique(pairs, axis=0, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(pairs), counts / len(pairs), size=resamples)
    sums = drawn @ distinct
    ratios = sums[:, 0][sums[:, 1] > 0] / sums[:, 1][sums[:, 1] > 0]
    low, high = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def student(values: Sequence[float]) -> Interval | None:
    """95 % interval of the mean of independent values, such as one figure of each of several seeds.

    By Student's t; None with fewer than two values.
    """
    if len(values) < 2:
        return None
    mean, margin = fmean(values), t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean - margin, mean + margin)


def t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t with so many degrees of freedom, at least 1.

    From a table up to 10, else by the expansion around the normal quantile (Abramowitz and Stegun, 26.7.5),
    whose error is then below 0.001.
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _totals(pairs: NDArray[np.float64], groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """Each group's sums of values and of weights. [groups, 2]"""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    totals = np.zeros((len(numbers), 2))
    np.add.at(totals, [numbers[group] for group in groups], pairs)
    return totals


@dataclass(frozen=True, slots=True)
class McNemar:
    """Whether two systems differ on the same questions, each taken as independent (McNemar 1947).

    Attributes:
        ours, theirs: numbers of questions that only we, and only they, answered correctly.
        statistic: chi-squared with Edwards' continuity correction, as Learning-to-Refine reports it
            (section 5.1); None if the test was exact.
        p: probability of a split at least as uneven, if both systems were equally good.
    """

    ours: int
    theirs: int
    statistic: float | None
    p: float


def mcnemar(ours: int, theirs: int) -> McNemar:
    """The test for two numbers of discordant questions; exact binomial if they are few."""
    discordant = ours + theirs
    if discordant < _EXACT_BELOW:
        tail = sum(math.comb(discordant, k) for k in range(min(ours, theirs) + 1)) / 2**discordant
        return McNemar(ours, theirs, None, min(1.0, 2 * tail))
    statistic = (abs(ours - theirs) - 1) ** 2 / discordant if ours != theirs else 0.0
    return McNemar(ours, theirs, statistic, math.erfc(math.sqrt(statistic / 2)))

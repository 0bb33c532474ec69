"""What the design can decide: how likely its looks are to end in a verdict, by simulation.

The spread of a finding's differences between seeds has two parts: training that goes differently, and test
questions that happen to be drawn. The record of earlier runs has both, because it keeps the F1 of each
question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.learning.design import Design, Finding, Look
from benchmarks.learning.verdicts import Runs

_SIMULATED = 20_000  # findings
_DEVIATIONS = (0.01, 0.02, 0.03, 0.045)
_SMALLEST = (0.01, 0.0175, 0.02, 0.03)


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of the difference in mean F1 between the two sides of a finding.

    Attributes:
        whole: between seeds.
        questions: the part of it that comes from which test questions were drawn.
    """

    whole: float
    questions: float

    @property
    def training(self) -> float:
        """The rest: training that went differently."""
        return math.sqrt(max(0.0, self.whole**2 - self.questions**2))


def spread(design: Design, finding: Finding, runs: Runs) -> Spread | None:
    """Of a finding about the F1 at the end; None with fewer than two pairs, or if it is about another."""
    both = [(runs.get((finding.has, seed)), runs.get((finding.lacks, seed))) for seed in design.seeds]
    found = [(one.f1, other.f1) for one, other in both if one is not None and other is not None]
    if finding.measure != "end" or len(found) < 2:
        return None
    # With and without are asked the same questions, so that what counts is how their differences vary.
    differences = [[a - b for a, b in zip(one, other, strict=True)] for one, other in found]
    drawn = fmean(variance(of_seed) / len(of_seed) for of_seed in differences)
    return Spread(stdev(map(fmean, differences)), math.sqrt(drawn))


def chances(looks: Sequence[Look], deviation: float, smallest: float, effect: float) -> tuple[float, float]:
    """Of a finding with a true effect, how likely it is to be given a sign, and to be called equivalent."""
    drawn = np.random.default_rng(0).normal(effect, deviation, (_SIMULATED, looks[-1].pairs))
    open_still = np.ones(_SIMULATED, bool)
    signs = equivalents = 0
    for look in looks:
        mean, margin = _estimates(drawn[:, : look.pairs], look.error)
        sign = open_still & (abs(mean) > margin)
        _, narrow = _estimates(drawn[:, : look.pairs], 2 * look.error)
        equivalent = open_still & ~sign & (abs(mean) + narrow < smallest)
        signs, equivalents = signs + int(sign.sum()), equivalents + int(equivalent.sum())
        open_still &= ~sign & ~equivalent
    return signs / _SIMULATED, equivalents / _SIMULATED


def power_table(design: Design) -> Iterator[str]:
    """The chance of a verdict without an effect, with the smallest one and with twice that, as Markdown."""
    yield "| deviation | smallest effect | none: equivalent | smallest: a sign | twice that: a sign |"
    yield "|---|---|---|---|---|"
    for deviation in _DEVIATIONS:
        for smallest in _SMALLEST:
            none, some, twice = (
                chances(design.looks, deviation, smallest, effect) for effect in (0.0, smallest, 2 * smallest)
            )
            yield f"| {deviation} | {smallest} | {none[1]:.2f} | {some[0]:.2f} | {twice[0]:.2f} |"


def spreads_table(design: Design, runs: Runs) -> Iterator[str]:
    """How much the differences of each finding vary, as Markdown."""
    yield "| finding | between seeds | by training | by questions |"
    yield "|---|---|---|---|"
    for name, finding in design.findings.items():
        if (found := spread(design, finding, runs)) is not None:
            yield f"| `{name}` | {found.whole:.3f} | {found.training:.3f} | {found.questions:.3f} |"


def _estimates(drawn: NDArray[np.float64], error: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and margin of each row."""
    pairs = drawn.shape[1]
    t = float(stats.t.ppf(1 - error / 2, pairs - 1))
    return drawn.mean(axis=1), t * drawn.std(axis=1, ddof=1) / math.sqrt(pairs)

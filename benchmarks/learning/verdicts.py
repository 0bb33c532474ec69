"""What the runs say about a finding: an effect with its interval, and a verdict.

Runs are paired by seed. A finding is looked at when as many pairs are there as the design says, and never in
between. The looks share an error of 5 %: at one with share a, a sign is said if the interval of Student's
t at 1 - a excludes 0, and equivalence if the one at 1 - 2a lies within the smallest effect that matters,
on both sides of 0 (two one-sided tests). The first look that decides is the last.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from scipy import stats

from benchmarks.learning.design import Design, Finding, Look
from benchmarks.learning.record import Entry, Loop
from benchmarks.learning.trial import Outcome

Runs = Mapping[tuple[str, int], Outcome]
"""By variant and seed."""

Verdict = Literal[
    "not run yet", "cannot show", "undecided", "equivalent", "same sign", "opposite", "helps", "harms"
]
OPEN: frozenset[Verdict] = frozenset({"not run yet", "undecided"})
"""More runs may change these."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A difference in mean F1, over pairs of runs of one seed.

    Attributes:
        deviation: standard deviation of the differences; None with fewer than two.
        look: at which it was last looked at; None before the first.
    """

    mean: float
    deviation: float | None
    pairs: int
    look: Look | None = None

    def margin(self, error: float) -> float:
        """Half of the two-sided interval that misses the true effect with this probability."""
        if self.deviation is None:
            return math.inf
        return float(stats.t.ppf(1 - error / 2, self.pairs - 1)) * self.deviation / math.sqrt(self.pairs)

    @property
    def sign(self) -> int:
        """1 or -1; 0 as long as the look's interval contains 0."""
        if self.look is None or abs(self.mean) <= self.margin(self.look.error):
            return 0
        return 1 if self.mean > 0 else -1

    def within(self, smallest: float) -> bool:
        """Whether the effect is smaller than this, on both sides of 0."""
        return self.look is not None and abs(self.mean) + self.margin(2 * self.look.error) < smallest


def current(design: Design, entries: Iterable[Entry], loop: Loop = "production") -> Runs:
    """The newest run of each variant and seed that a loop made as the design says now."""
    known = {name: design.digest(name) for name in design.variants}
    return {
        (entry.variant, entry.seed): entry.outcome
        for entry in entries
        if entry.loop == loop and known.get(entry.variant) == entry.digest and entry.seed in design.seeds
    }


def pairs(design: Design, finding: Finding, runs: Runs) -> list[tuple[float, float]]:
    """F1 with and without, of each seed that both have been run under, in the order of the seeds."""
    both = [(runs.get((finding.has, seed)), runs.get((finding.lacks, seed))) for seed in design.seeds]
    found = [(with_, without) for with_, without in both if with_ is not None and without is not None]
    match finding.measure:
        case "end":
            return [(fmean(with_.f1), fmean(without.f1)) for with_, without in found]
        case "start":
            return [(with_.start, without.start) for with_, without in found]
        case "gain":
            return [(fmean(with_.f1), with_.start) for with_, _ in found]


def effect(design: Design, finding: Finding, runs: Runs) -> Effect | None:
    """What the claim does to the F1, at the look that decided or else at the last one; None without a pair.

    Before the first look it is that of all pairs.
    """
    differences = [with_ - without for with_, without in pairs(design, finding, runs)]
    if not differences:
        return None
    found = _effect(differences, None)
    for look in design.looks:
        if len(differences) < look.pairs:
            break
        found = _effect(differences[: look.pairs], look)
        if found.sign or found.within(finding.smallest):
            break
    return found


def verdict(design: Design, finding: Finding, runs: Runs) -> Verdict:
    """How our effect stands to that of the paper."""
    found = effect(design, finding, runs)
    if found is None:
        return "not run yet"
    if found.look is None:
        return "undecided"
    if not able_to_show(design, finding, runs):
        return "cannot show"
    if found.sign == 0:
        return "equivalent" if found.within(finding.smallest) else "undecided"
    if finding.sign == 0:
        return "helps" if found.sign > 0 else "harms"
    return "same sign" if found.sign == finding.sign else "opposite"


def able_to_show(design: Design, finding: Finding, runs: Runs) -> bool:
    """Whether the runs with what is claimed have what the finding needs, such as a gain to be split."""
    has, lacks = (
        [runs[variant, seed] for seed in design.seeds if (variant, seed) in runs]
        for variant in (finding.has, finding.lacks)
    )
    gain = fmean(fmean(one.f1) - one.start for one in has)
    # A reward that makes such answers rare has shown something, so those of either variant count.
    return gain >= finding.needs.gain and max(_partly(has), _partly(lacks)) >= finding.needs.partly


def _partly(outcomes: Iterable[Outcome]) -> float:
    """Share of answers that are partly right among those with an F1 above 0."""
    right = [value for one in outcomes for value in one.f1 if value > 0]
    return fmean(value < 1 for value in right) if right else 0.0


def missing(design: Design, runs: Runs, names: Collection[str]) -> list[tuple[str, int]]:
    """Variants and seeds that the next looks at findings need, seed by seed, so that all have pairs early.

    Args:
        names: of the findings.
    """
    wanted: dict[tuple[str, int], None] = {}
    findings = [design.findings[name] for name in names]
    still_open = [one for one in findings if verdict(design, one, runs) in OPEN]
    for place, seed in enumerate(design.seeds, 1):
        for finding in still_open:
            if place <= _next_look(design, len(pairs(design, finding, runs))):
                wanted |= dict.fromkeys([(finding.has, seed), (finding.lacks, seed)])
    return [one for one in wanted if one not in runs]


def _next_look(design: Design, made: int) -> int:
    """Pairs at the first look for which more are needed."""
    return next((look.pairs for look in design.looks if look.pairs > made), 0)


def _effect(differences: Sequence[float], look: Look | None) -> Effect:
    deviation = stdev(differences) if len(differences) > 1 else None
    return Effect(fmean(differences), deviation, len(differences), look)

"""The table of findings: the paper's effect, ours with its interval, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from benchmarks.learning.design import Design, Finding
from benchmarks.learning.record import Entry, Loop
from benchmarks.learning.trial import Outcome

# Student's t for a two-sided 95 %, by degrees of freedom: pairs less one.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}

Runs = Mapping[tuple[str, int], Outcome]
"""By variant and seed."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A difference in mean F1, over pairs of runs of one seed.

    Attributes:
        margin: half of the 95 % interval, by Student's t over the pairs; None with fewer than two.
    """

    mean: float
    margin: float | None
    pairs: int

    @property
    def sign(self) -> int:
        """1 or -1; 0 while the interval holds 0."""
        if self.margin is None or abs(self.mean) <= self.margin:
            return 0
        return 1 if self.mean > 0 else -1


def current(design: Design, entries: Iterable[Entry], loop: Loop = "production") -> Runs:
    """The newest run of each variant and seed that a loop made as the design says now."""
    known = {name: design.digest(name) for name in design.variants}
    return {
        (entry.variant, entry.seed): entry.outcome
        for entry in entries
        if entry.loop == loop and known.get(entry.variant) == entry.digest and entry.seed in design.seeds
    }


def effect(design: Design, finding: Finding, runs: Runs) -> Effect | None:
    """What the claim does to the F1; None until a pair is there."""
    differences = [with_ - without for with_, without in _pairs(design, finding, runs)]
    if not differences:
        return None
    return Effect(fmean(differences), _margin(differences), len(differences))


def _pairs(design: Design, finding: Finding, runs: Runs) -> list[tuple[float, float]]:
    """F1 with and without, of each seed that both have been run under."""
    both = [(runs.get((finding.has, seed)), runs.get((finding.lacks, seed))) for seed in design.seeds]
    found = [(with_, without) for with_, without in both if with_ is not None and without is not None]
    match finding.measure:
        case "end":
            return [(fmean(with_.f1), fmean(without.f1)) for with_, without in found]
        case "start":
            return [(with_.start, without.start) for with_, without in found]
        case "gain":
            return [(fmean(with_.f1), with_.start) for with_, _ in found]


def _margin(differences: Sequence[float]) -> float | None:
    freedom = len(differences) - 1
    return _T[freedom] * stdev(differences) / math.sqrt(len(differences)) if freedom else None


def verdict(sign: int, effect: Effect | None) -> str:
    """How our effect stands to that of the paper, whose sign is given."""
    if effect is None:
        return "not run yet"
    if effect.sign == 0:
        return "undecided"
    if sign == 0:
        return "helps" if effect.sign > 0 else "harms"
    return "same sign" if effect.sign == sign else "opposite"


def findings_table(design: Design, runs: Runs) -> Iterator[str]:
    """As Markdown."""
    yield "| claim | the paper's effect | ours: F1 with, without; difference [95 %] | |"
    yield "|---|---|---|---|"
    for finding in design.findings.values():
        found = effect(design, finding, runs)
        stands = verdict(finding.sign, found)
        learned = f". {finding.learned}" if finding.learned else ""
        ours = _ours(design, finding, runs, found)
        yield f"| {finding.claim} | {finding.paper}: {finding.reports} | {ours} | {stands}{learned} |"


def _ours(design: Design, finding: Finding, runs: Runs, found: Effect | None) -> str:
    if found is None:
        return ""
    with_, without = map(fmean, zip(*_pairs(design, finding, runs), strict=True))
    margin = "" if found.margin is None else f" ± {found.margin:.3f}"
    pairs = "" if found.pairs == len(design.seeds) else f" ({found.pairs} of {len(design.seeds)} seeds)"
    return f"{with_:.3f}, {without:.3f}; {found.mean:+.3f}{margin}{pairs}"


def variants_table(design: Design, runs: Runs) -> Iterator[str]:
    """Every variant: F1 of each seed before and after reinforcement learning, as Markdown."""
    yield "| variant | seeds | cold start | end | steps | sampled tokens | seconds |"
    yield "|---|---|---|---|---|---|---|"
    for name in design.variants:
        found = [runs[name, seed] for seed in design.seeds if (name, seed) in runs]
        if not found:
            continue
        start, end = ([f"{value:.3f}" for value in values] for values in _ends(found))
        yield (
            f"| `{name}` | {len(found)} | {' '.join(start)} | {' '.join(end)} "
            f"| {' '.join(str(one.steps) for one in found)} "
            f"| {fmean(one.sampled_tokens for one in found):,.0f} "
            f"| {' '.join(f'{one.seconds:.0f}' for one in found)} |"
        )


def _ends(found: Sequence[Outcome]) -> tuple[list[float], list[float]]:
    return [one.start for one in found], [fmean(one.f1) for one in found]

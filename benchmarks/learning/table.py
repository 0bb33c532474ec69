"""The table of findings: the paper's effect, ours with its interval, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmarks.learning.design import Design, Finding
from benchmarks.learning.trial import Outcome
from benchmarks.learning.verdicts import Runs, effect, pairs, verdict


def findings_table(design: Design, runs: Runs) -> Iterator[str]:
    """As Markdown."""
    yield "| claim | the paper's effect | ours: F1 with, without; difference ± the look's margin (pairs) | |"
    yield "|---|---|---|---|"
    for finding in design.findings.values():
        stands = verdict(design, finding, runs)
        learned = f". {finding.learned}" if finding.learned else ""
        ours = _ours(design, finding, runs)
        yield f"| {finding.claim} | {finding.paper}: {finding.reports} | {ours} | {stands}{learned} |"


def _ours(design: Design, finding: Finding, runs: Runs) -> str:
    found = effect(design, finding, runs)
    if found is None:
        return ""
    with_, without = map(fmean, zip(*pairs(design, finding, runs)[: found.pairs], strict=True))
    margin = f" ± {found.margin(found.look.error):.3f}" if found.look is not None else ""
    return f"{with_:.3f}, {without:.3f}; {found.mean:+.3f}{margin} ({found.pairs})"


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

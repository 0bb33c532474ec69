"""What the runs say about the findings, as the file that `kbqa report --findings` draws."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.learning.design import Design, Finding
from benchmarks.learning.verdicts import Runs, effect, pairs, verdict
from kbqa import reports
from kbqa.reports.findings import Effect, Trial

_MEASURED = {
    "end": "F1 on the test questions after RL",
    "start": "F1 on the test questions before RL",
    "gain": "F1 on the test questions after RL and before it",
}


def findings(design: Design, runs: Runs) -> reports.Findings:
    """All findings of the design, also those without runs."""
    looks = ", ".join(str(look.pairs) for look in design.looks)
    return reports.Findings(
        title="The papers' ablations",
        about="Pairs of runs share a seed, and with it the world, the questions and the base policy. Each "
        f"finding is looked at after {looks} pairs, until it is decided; the looks share an error of 5 %. "
        "It is equivalent if the interval at twice the look's error is within the smallest effect that "
        "matters.",
        findings=[_finding(design, name, finding, runs) for name, finding in design.findings.items()],
    )


def _finding(design: Design, name: str, finding: Finding, runs: Runs) -> reports.Finding:
    variant = design.variants[finding.has]
    questions = {len(runs[finding.has, seed].f1) for seed in design.seeds if (finding.has, seed) in runs}
    return reports.Finding(
        name=name,
        claim=finding.claim,
        paper=finding.paper,
        reports=finding.reports,
        has=finding.has,
        lacks=finding.lacks,
        measured=_MEASURED[finding.measure],
        verdict=verdict(design, finding, runs),
        effect=_effect(design, finding, runs),
        smallest=finding.smallest,
        questions=max(questions, default=None),
        trials=list(_trials(design, finding, runs)),
        learned=finding.learned,
        notes=[f"Trained on {variant.dataset} with the recipe {variant.recipe}."],
    )


def _effect(design: Design, finding: Finding, runs: Runs) -> Effect | None:
    """At the look that decided or else at the last one; before the first, without an interval."""
    found = effect(design, finding, runs)
    if found is None:
        return None
    if found.look is None:
        return Effect(mean=found.mean)
    margin = found.margin(found.look.error)
    return Effect(
        mean=found.mean, low=found.mean - margin, high=found.mean + margin, confidence=1 - found.look.error
    )


def _trials(design: Design, finding: Finding, runs: Runs) -> Iterator[Trial]:
    """Of each seed that both variants have been run under; those that the effect does not count, too."""
    both = [seed for seed in design.seeds if (finding.has, seed) in runs and (finding.lacks, seed) in runs]
    for seed, (has, lacks) in zip(both, pairs(design, finding, runs), strict=True):
        yield Trial(seed=seed, has=has, lacks=lacks)

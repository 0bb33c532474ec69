"""Builds a report from runs, evaluations and findings."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import kbqa
from kbqa.errors import ConfigurationError
from kbqa.evaluation.significance import student
from kbqa.reports.answers import EvaluationFile
from kbqa.reports.comparing import Side, compared, telling
from kbqa.reports.curves import charts
from kbqa.reports.entries import Entry, System, of_evaluation, of_run, systems_of
from kbqa.reports.findings import Findings
from kbqa.reports.reading import read_run
from kbqa.reports.views import Report, SceneView, Score, SystemView, TellingsView
from kbqa.runs.directory import RunDirectory

_NAMED = 3  # values that the name of a system contains


def build(
    runs: Iterable[RunDirectory],
    evaluations: Sequence[EvaluationFile] = (),
    findings: Sequence[Findings] = (),
    *,
    against: str | None = None,
    title: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Report:
    """The report of runs, of evaluations of whatever answers questions, and of findings.

    Args:
        against: name of the run whose system the others on its data set are compared with; otherwise, on each
            data set, the system of the oldest run.
        left_out: runs that were not to be read, each with the reason.

    Raises:
        RunError: a run's `run.json` is missing or damaged.
        ConfigurationError: there is nothing to report, or no run of the name `against`.
    """
    read = [of_run(read_run(directory)) for directory in runs]
    systems = systems_of([*read, *map(of_evaluation, evaluations)])
    entries = [entry for system in systems for entry in system]
    if not entries and not findings:
        raise ConfigurationError(
            "there is nothing to report: name a run, an evaluation or a file of findings"
        )
    if against is not None and against not in {entry.view.name for entry in entries}:
        names = ", ".join(entry.view.name for entry in entries)
        raise ConfigurationError(f"--against {against}: the report has no run of this name (it has: {names})")
    datasets = list(dict.fromkeys(entry.dataset for entry in entries))
    return Report(
        title=title or _title(entries, datasets, findings),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        kbqa=kbqa.__version__,
        scenes=[_scene(dataset, systems, against) for dataset in datasets],
        systems=[_system_view(system, systems) for system in systems],
        runs=[
            entry.view.model_copy(update={"system": number})
            for number, system in enumerate(systems)
            for entry in system
        ],
        findings=list(findings),
        left_out=dict(left_out or {}),
    )


def _title(entries: Sequence[Entry], datasets: Sequence[str], findings: Sequence[Findings]) -> str:
    if not entries:
        return findings[0].title
    count = f"{len(entries)} runs" if len(entries) > 1 else entries[0].view.name
    return f"{count} on {', '.join(datasets)}"


def _scene(dataset: str, systems: Sequence[System], against: str | None) -> SceneView:
    here = [number for number, system in enumerate(systems) if system[0].dataset == dataset]
    named = [number for number in here if any(entry.view.name == against for entry in systems[number])]
    reference = (named or here)[0]
    comparisons = [
        comparison
        for number in here
        if number != reference and (comparison := compared(number, reference, systems)) is not None
    ]
    entries = {entry.place: entry for number in here for entry in systems[number]}
    tellings = []
    for comparison in comparisons:
        pair = comparison.pairs[0]
        ours, theirs = _final(entries[pair.ours]), _final(entries[pair.theirs])
        tellings.append(telling(f"{ours.name} and {theirs.name}", ours, theirs))
    for number in here:
        trained = next((entry for entry in systems[number] if entry.first is not None), None)
        if trained is not None:
            tellings.append(_before_and_after(trained))
    return SceneView(
        dataset=dataset,
        systems=here,
        reference=reference,
        charts=charts(
            {number: [entry.run for entry in systems[number] if entry.run is not None] for number in here}
        ),
        comparisons=comparisons,
        tellings=[one for one in tellings if one.questions],
    )


def _final(entry: Entry) -> Side:
    assert entry.final is not None, "it was compared"
    return Side(entry.view.name, entry.final)


def _before_and_after(entry: Entry) -> TellingsView:
    assert entry.first is not None, "the caller has looked"
    phases = entry.view.phases
    last = Side(phases[-1].phase, _final(entry).answers)
    return telling(f"{entry.view.name}, before and after training", last, Side(phases[0].phase, entry.first))


def _system_view(system: System, systems: Sequence[System]) -> SystemView:
    first = system[0]
    others = [
        one[0]
        for one in systems
        if one is not system and (one[0].dataset, one[0].kind) == (first.dataset, first.kind)
    ]
    namesakes = [other for other in others if other.recipe == first.recipe]
    named = _differing(first, namesakes)
    shown = [f"{key}={_plain(value)}" for key, value in list(named.items())[:_NAMED]]
    more = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    done = [entry.view.seconds for entry in system if entry.score is not None and entry.view.seconds]
    return SystemView(
        name=" · ".join([first.recipe, ", ".join([*shown, *more])]) if shown else first.recipe,
        kind=first.kind,
        recipe=first.recipe,
        paper=first.paper,
        dataset=first.dataset,
        runs=[entry.place for entry in system],
        score=_system_score(system),
        seconds=fmean(done) if done else None,
        values=_differing(first, others),
    )


def _system_score(system: System) -> Score | None:
    """The mean over the seeds; several runs of one seed count as their mean."""
    scored = [(entry.view.seed, entry.score) for entry in system if entry.score is not None]
    if len(scored) < 2:
        return scored[0][1] if scored else None
    by_seed: defaultdict[int, list[float]] = defaultdict(list)
    for seed, score in scored:
        by_seed[seed].append(score.mean)
    means = [fmean(found) for found in by_seed.values()]
    interval = student(means)
    if interval is None:
        return Score(mean=means[0])
    return Score(mean=fmean(means), low=max(interval.low, 0.0), high=min(interval.high, 1.0))


def _differing(entry: Entry, others: Sequence[Entry]) -> dict[str, Any]:
    """The values of an entry that at least one of the others has otherwise."""
    keys = {key for other in others for key in other.values.keys() | entry.values.keys()}
    return {
        key: entry.values.get(key)
        for key in sorted(keys - {"name"})
        if any(other.values.get(key) != entry.values.get(key) for other in others)
    }


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

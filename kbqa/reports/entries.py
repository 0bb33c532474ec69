"""Runs and evaluations on their way into a report, and the systems that they are runs of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kbqa.curves import paper_of
from kbqa.reports.answers import Answers, EvaluationFile, minus
from kbqa.reports.reading import ReadRun, notes_of
from kbqa.reports.views import PhaseView, RunView, Score
from kbqa.runs.directory import State


@dataclass(slots=True)
class Entry:
    """A run or an evaluation.

    Attributes:
        values: of the recipe and the limits, by dotted key.
        final: the answers after the last phase; None if they are not on record.
        first: the answers before training.
        score: of the final answers; None while there are none.
        place: index in the report.
    """

    view: RunView
    kind: Literal["recipe", "evaluation"]
    recipe: str
    paper: str
    dataset: str
    values: Mapping[str, Any]
    final: Answers | None
    first: Answers | None
    score: Score | None
    run: ReadRun | None = None
    place: int = -1

    @property
    def key(self) -> str:
        """Equal for runs that differ by their seeds alone."""
        return json.dumps([self.kind, self.dataset, self.recipe, self.values], sort_keys=True)


System = list[Entry]
"""Entries that differ by their seeds alone, in the order of these."""


def systems_of(entries: Iterable[Entry]) -> list[System]:
    """The systems, that of the oldest run first and evaluations last; numbers their entries."""
    by_key: dict[str, System] = {}
    for entry in sorted(entries, key=lambda one: (one.kind != "recipe", one.view.created_at, one.view.name)):
        by_key.setdefault(entry.key, []).append(entry)
    systems = [sorted(found, key=lambda one: one.view.seed) for found in by_key.values()]
    for place, entry in enumerate(entry for system in systems for entry in system):
        entry.place = place
    return systems


def of_run(run: ReadRun) -> Entry:
    """A training run; it has a final score once it is done."""
    record, results = run.record, run.results
    means, by_hops = results.get("f1", {}), results.get("f1_by_hops", {})
    judged_by = results.get("judged_by", {})
    phases = []
    for phase in run.phases:
        answers = run.answers.get(phase)
        score = (
            Score(mean=means[phase], questions=judged_by.get("questions"))
            if answers is None
            else answers.score()
        )
        phases.append(PhaseView(phase=phase, score=score, by_hops=by_hops.get(phase, {})))
    last = phases[-1].phase if phases else None
    is_done = run.is_done and last is not None
    first = run.answers.get(phases[0].phase) if phases else None
    final = run.answers.get(last) if is_done and last is not None else None
    gained = minus(final, first) if final is not None and first is not None and len(phases) > 1 else None
    versions = results.get("versions", {})
    recipe = record.recipe
    return Entry(
        view=RunView(
            name=record.id,
            system=0,
            seed=record.seed,
            state=State.DONE.value if run.is_done else record.state.value,
            created_at=record.created_at,
            seconds=run.progress.get("seconds"),
            phase=str(run.progress.get("phase", "")),
            step=run.progress.get("step"),
            of=run.progress.get("of"),
            device=results.get("device"),
            policy=versions.get(last) if last is not None else None,
            split=judged_by.get("split"),
            phases=phases,
            gained=gained,
            notes=notes_of(run),
            problems=run.problems,
        ),
        kind="recipe",
        recipe=str(recipe.get("name", "?")),
        paper=paper_of(str((recipe.get("reward") or {}).get("name", ""))),
        dataset=record.dataset,
        values=_flat({**recipe, "limits": record.limits.model_dump(mode="json")}),
        final=final,
        first=first if gained is not None else None,
        score=phases[-1].score if is_done else None,
        run=run,
    )


def of_evaluation(file: EvaluationFile) -> Entry:
    """What `kbqa eval` has measured."""
    score = file.answers.score()
    return Entry(
        view=RunView(
            name=file.policy,
            system=0,
            seed=file.seed,
            state="evaluated",
            created_at=file.created_at,
            seconds=file.seconds,
            policy=file.policy,
            split=file.split,
            phases=[PhaseView(phase="evaluated", score=score, by_hops={})],
        ),
        kind="evaluation",
        recipe=f"{file.policy} ({file.how})",
        paper="",
        dataset=file.dataset,
        values={},
        final=file.answers,
        first=None,
        score=score,
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found

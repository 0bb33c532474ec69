"""Reads what a run has left on the disk; what is damaged becomes a problem of that run, not of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbqa.errors import RunError
from kbqa.reports.answers import Answers, of_phase
from kbqa.reports.curves import Records
from kbqa.runs.directory import RunDirectory, RunRecord, State
from kbqa.runs.journal import DONE

PHASES = ("base", "cold_start", "rl")


@dataclass(frozen=True, slots=True)
class ReadRun:
    """Attributes:
    results: F1, versions and so on, as the run has kept them so far.
    answers: by phase, where they are on record.
    """

    record: RunRecord
    progress: Mapping[str, Any]
    records: Records
    answers: Mapping[str, Answers]
    problems: list[str] = field(default_factory=list)

    @property
    def results(self) -> Mapping[str, Any]:
        found = self.progress.get("results", {})
        return found if isinstance(found, dict) else {}

    @property
    def is_done(self) -> bool:
        """Whether it has its final result; without a service, nobody writes a run's state."""
        return self.record.state is State.DONE or self.progress.get("phase") == DONE

    @property
    def phases(self) -> Sequence[str]:
        """The phases with a result, in their order."""
        return [name for name in PHASES if name in self.results.get("f1", {})]


def read_run(directory: RunDirectory) -> ReadRun:
    """Raises: RunError: `run.json` is missing or damaged."""
    record = directory.read()
    problems: list[str] = []
    progress: Mapping[str, Any] = {}
    records: Records = []
    answers: dict[str, Answers] = {}
    try:
        progress = directory.progress()
    except (OSError, ValueError, AssertionError) as error:
        problems.append(f"progress.json cannot be read, so there are no results: {error}")
    try:
        records = [one for one in directory.records() if {"kind", "phase", "step", "seconds"} <= one.keys()]
    except (OSError, ValueError, AttributeError) as error:
        problems.append(f"metrics.jsonl cannot be read, so there are no curves: {error}")
    for phase in PHASES:
        try:
            judged = directory.judged.read(phase)
        except RunError as error:
            problems.append(str(error))
            continue
        if judged is not None and judged.questions:
            answers[phase] = of_phase(judged)
    return ReadRun(record, progress, records, answers, problems)


def notes_of(run: ReadRun) -> list[str]:
    """What a reader has to know before the figures."""
    results, record = run.results, run.record
    found = []
    if not run.is_done:
        found.append(f"The run is not finished ({record.state.value}), so it has no final result.")
    if error := record.error or run.progress.get("error"):
        found.append(f"It failed: {error}")
    if ended := results.get("ended"):
        found.append(f"It ended early: {ended}")
    if record.restarts:
        found.append(f"Its training process was started again {record.restarts} times.")
    if count := results.get("validation_from_train"):
        found.append(f"{count} of the training questions were used for validation.")
    for name, alarm in (results.get("alarms") or {}).items():
        found.append(f"Alarm: {name.replace('_', ' ')} {json.dumps(alarm)}")
    return found

"""The report of `kbqa eval` as one self-contained HTML file, which loads nothing from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kbqa.evaluation.evaluation import PlayedExample
from kbqa.evaluation.failures import AnswerOutcome
from kbqa.evaluation.measures import METRICS
from kbqa.trajectory import ExecutedAction, Trajectory, Turn
from services.page.document import document

_STYLES = ("base.css", "trajectories.css", "figures.css", "document.css", "evaluation.css")
_MODULES = ("dom.js", "format.js", "figures.js", "turns.js", "evaluation.js")
_PARTS = {"results": "Results", "failures": "Failures", "trajectories": "Trajectories"}
_MOST_CHARACTERS = 4000  # per text
_MOST_LABELS = 12  # per action, of the items that it found
_MOST_COLUMNS = 24


def page(result: Mapping[str, Any], examples: Sequence[PlayedExample]) -> str:
    """The report as HTML.

    Args:
        result: the output of `kbqa eval --json`.
        examples: questions with their episodes, which the report shows in full.
    """
    records = result["records"]
    data = {
        **{name: value for name, value in result.items() if name != "records"},
        "titles": {name: [m.title, m.meaning, m.is_share] for name, m in METRICS.items()},
        "columns": {name: _columns(records, name) for name in ("turns", "generated_tokens")},
        "outcomes_by_hops": _by_hops(records),
        "examples": [_example(example) for example in examples],
    }
    return document(f"{result['policy']} on {result['dataset']}", data, _STYLES, _MODULES, _PARTS)


def _columns(records: Sequence[Mapping[str, Any]], metric: str) -> dict[str, Any]:
    """Histogram of a metric: number of questions by outcome and column.

    Returns:
        `edges`: lower bound of each column; `width`: width of all columns; `counts`: outcome → number of
        questions in each column.
    """
    values = [(record["measures"][metric], record["outcome"]) for record in records]
    most = max(value for value, _ in values)
    width = max(1, -(-int(most + 1) // _MOST_COLUMNS))
    columns = int(most // width) + 1
    counts = {outcome.value: [0] * columns for outcome in AnswerOutcome}
    for value, outcome in values:
        counts[outcome][int(value // width)] += 1
    return {"edges": [column * width for column in range(columns)], "width": width, "counts": counts}


def _by_hops(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Number of hops → outcome → number of questions; questions with an unknown number are left out."""
    counts = Counter((record["hops"], record["outcome"]) for record in records)
    hops = sorted({hops for hops, _ in counts if hops})
    return {
        number: {outcome.value: counts[number, outcome.value] for outcome in AnswerOutcome} for number in hops
    }


def _example(example: PlayedExample) -> dict[str, Any]:
    record, question = example.record, example.record.question
    return {
        **record.to_json(),
        "question": _cut(question.text),
        "topics": list(question.topic_entities),
        "path": [f"{'^' if hop.inverse else ''}{hop.relation}" for hop in question.path],
        "verdict": record.verdict
        and {"correct": record.verdict.correct, "why": _cut(record.verdict.justification)},
        "runs": [_run(run) for run in example.runs],
    }


def _run(run: Trajectory) -> dict[str, Any]:
    return {
        "status": run.status.value,
        "answers": [_cut(answer) for answer in run.answers],
        "turns": [_turn(turn) for turn in run.turns],
    }


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "status": turn.status.value,
        "well_formed": turn.well_formed,
        "thought": _cut(turn.thought),
        "text": _cut(turn.text),
        "observation": _cut(turn.observation),
        "tokens": turn.end - turn.start,
        "actions": [_action(action) for action in turn.actions],
    }


def _action(action: ExecutedAction) -> dict[str, Any]:
    return {
        "name": _cut(action.name),
        "arguments": {name: _cut(value) for name, value in action.arguments.items()},
        "code": action.code,
        "kind": action.kind,
        "found": len(action.items),
        "labels": [_cut(label) for label in action.labels[:_MOST_LABELS]],
    }


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"

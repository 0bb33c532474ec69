"""The output of `kbqa eval`: tables on standard output, and files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kbqa.evaluation import METRICS
from kbqa.evaluation.evaluation import PlayedExample
from services.cli.output import write_text
from services.page.evaluation import page

_PRINTED = ("hits@1", "f1", "em_set")  # metrics printed for each part of a breakdown


def print_summary(result: Mapping[str, Any]) -> None:
    """Print the figures as tables on standard output."""
    console = Console(highlight=False, markup=False)
    how = f"baseline {result['baseline']}" if result["baseline"] else f"recipe {result['recipe']}"
    asked = f"{result['questions']:,} questions of {result['dataset']} ({result['split']})"
    speed = f"{result['seconds']:.0f} s, {result['questions_per_second']:.1f} questions/s"
    names = list(result["graphs"])
    graphs = f"graph {names[0]}" if len(names) == 1 else f"{len(names)} graphs"
    console.print(f"{result['policy']} on {asked}, {graphs}, {how}; {speed}", soft_wrap=True)
    table = Table("metric", "value", "95 % interval", "in papers", box=None)
    for name, value in result["metrics"].items():
        metric, (low, high) = METRICS[name], result["intervals"][name]
        digits = 3 if metric.is_share else 1
        interval = f"{low:.{digits}f} … {high:.{digits}f}"
        table.add_row(metric.title, f"{value:.{digits}f}", interval, metric.papers)
    console.print(table)
    if result["pass_at"]:
        passed = ", ".join(f"{share:.3f} (K = {k})" for k, share in result["pass_at"].items())
        console.print(f"Pass@K: {passed}")
    if (said := _grouped(result)) is not None:
        console.print(
            f"95 % intervals are over {said}: questions of one group have the same path and topics",
            soft_wrap=True,
        )
    for kind, parts in result["breakdowns"].items():
        if parts:
            table = Table(kind, "questions", *(METRICS[name].title for name in _PRINTED), box=None)
            for value, part in parts.items():
                figures = (f"{part['metrics'][name]:.3f}" for name in _PRINTED)
                table.add_row(value, str(part["questions"]), *figures)
            console.print(table)
    for kind, counts in result["classes"].items():
        console.print(f"{kind}: " + ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts.items()))
    if result["leaking"]:
        console.print(
            "the split was drawn at random, so training contains paraphrases and paths of its questions"
        )
    if result["left_out"]:
        console.print(f"{result['left_out']} questions were left out because the recipe does not suit them")
    if result["unjudged"]:
        console.print(f"{result['unjudged']} questions have no verdict from the judge")
    if result["confidence"] is not None:
        _print_confidence(console, result["confidence"])
    if result["comparison"] is not None:
        _print_comparison(console, result["comparison"])


def _print_confidence(console: Console, confidence: Mapping[str, Any]) -> None:
    console.print(
        f"confidence: expected calibration error {confidence['calibration_error']:.3f} "
        f"({confidence['questions']:,} answered questions)"
    )
    table = Table("least confidence", "answered", "right among them", box=None)
    for point in confidence["curve"]:
        right = "" if point["accuracy"] is None else f"{point['accuracy']:.3f}"
        table.add_row(f"{point['threshold']:.2f}", f"{point['coverage']:.3f}", right)
    console.print(table)


def _grouped(counted: Mapping[str, Any]) -> str | None:
    """The number of groups and questions as text; None if every question is a group of its own."""
    questions, groups = counted["questions"], counted["groups"]
    return None if groups == questions else f"{groups:,} groups of {questions:,} questions"


def _print_comparison(console: Console, comparison: Mapping[str, Any]) -> None:
    said = _grouped(comparison) or f"{comparison['questions']:,} questions"
    console.print(f"against {comparison['name']}, {said}", soft_wrap=True)
    table = Table("metric", "this", "that", "difference", "95 % interval", "McNemar by question", box=None)
    for name, difference in comparison["differences"].items():
        low, high = difference["interval"]
        test = difference["test"]
        pairs = "" if test is None else f"{test['ours']} : {test['theirs']}, p = {test['p']:.2g}"
        digits = 3 if METRICS[name].is_share else 1
        numbers = (difference["ours"], difference["theirs"])
        table.add_row(
            METRICS[name].title,
            *(f"{number:.{digits}f}" for number in numbers),
            f"{difference['difference']:+.{digits}f}",
            f"{low:+.{digits}f} … {high:+.{digits}f}",
            pairs,
        )
    console.print(table)


def write(
    as_json: Path | None, html: Path | None, result: Mapping[str, Any], examples: Sequence[PlayedExample]
) -> None:
    """Write the files that the options name, each completely or not at all.

    Raises:
        ConfigurationError: a file cannot be written.
    """
    if as_json is not None:
        write_text(as_json, json.dumps(result, ensure_ascii=False, indent=1))
    if html is not None:
        write_text(html, page(result, examples))

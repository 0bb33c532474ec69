"""python -m benchmarks.reader [POLICY]: what the shipped reader answers on graphs that it was not trained on.

POLICY is the directory of another policy, such as one that training has begun with the reader.

Topic entities are given. MetaQA and PathQuestion are read from KBQA_DATA. MetaQA's questions are of its test
files; PathQuestion has none, so they are of the whole files. The worlds are generated, and their schemas are
in no training data. The graphs in benchmarks/natural are small, and their questions were written by hand, as
people ask. "none" asks questions of MetaQA whose first fact was removed from the graph, and "lacking" asks
for relations that no node of a natural graph has: there, an answer is wrong. (The gold answer in
lacking.jsonl is the topic, which no answer names.)

MetaQA's graph merges films with the same name, so that gold paths do not always lead to exactly the gold
answers. Therefore the answers that the policy is surest of are compared with both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from kbqa.answers import answer_set
from kbqa.cold_start.demonstrations import play
from kbqa.cold_start.teachers import teacher_of
from kbqa.confidence import calibration_error, is_right
from kbqa.datasets import load_dataset, spread
from kbqa.kg.actions import GraphTools
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store.shipped import READER
from kbqa.recipes import load_recipe
from kbqa.trajectory import Question
from services.cli.graphs import load_graphs, local_tools

_QUESTIONS, _OF_A_FILE = 500, 2000  # at most, evenly spaced; of PathQuestion's files
_SETS = (
    "metaqa-1hop",
    "metaqa-2hop",
    "metaqa-3hop",
    "pathquestion-2h",
    "pathquestion-3h",
    "worlds",
    "world-all",
)
_FILES = {"pathquestion-2h": "PQ-2H.txt", "pathquestion-3h": "PQ-3H.txt"}
_NATURAL = Path(__file__).parent / "natural"
_LACKING, _LACKING_FILE = "metaqa-lacking", "lacking.jsonl"
_MERGED = ("metaqa-1hop", "metaqa-2hop", "metaqa-3hop")
_SUREST = 0.8  # of the questions
_ITEMS = 20  # of a hop that a teacher is shown, as for demonstrations
_THRESHOLD = 0.5  # the gateway's default
_THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def main() -> int:
    """Returns the exit code."""
    if "KBQA_DATA" not in os.environ:
        sys.stderr.write("set KBQA_DATA to the directory that holds metaqa/ and pathquestion/\n")
        return 2
    with tempfile.TemporaryDirectory() as home:
        for line in report(Path(home), *sys.argv[1:2]):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


def report(home: Path, policy: str = READER) -> Iterator[str]:
    """The figures of a policy, as Markdown."""
    evaluated = partial(_evaluate, policy, home)
    answered = f"answered at {_THRESHOLD}"
    yield f"| data set | questions | Hits@1 | F1 | calibration error | {answered} | right among them |"
    yield "|---|---|---|---|---|---|---|"
    results: dict[str, Mapping[str, Any]] = {}
    for name in _SETS:
        if name in _FILES:
            file = _data() / "pathquestion" / _FILES[name]
            results[name] = evaluated(name, "--data", str(file), limit=_OF_A_FILE)
        else:
            results[name] = evaluated(name)
        yield _row(name, results[name])
    for graph in sorted(_NATURAL.iterdir()):
        _load(home, graph.name, graph / "graph.tsv")
        name = f"natural: {graph.name}"
        results[name] = evaluated(graph.name, "--data", str(graph))
        yield _row(name, results[name])
    known = list(results.values())
    for graph in sorted(_NATURAL.iterdir()):
        name = f"lacking: {graph.name}"
        results[name] = evaluated(graph.name, "--data", str(graph / _LACKING_FILE))
        yield _row(name, results[name])
    _lack(home)
    name = "metaqa-1hop, none"
    results[name] = evaluated("metaqa-1hop", "--kg", _LACKING)
    yield _row(name, results[name])
    yield f"\nCalibration error on all questions whose fact is there: {_pooled_error(known):.3f}."
    for name in ("worlds", "world-all"):
        operations = results[name]["breakdowns"]["operation"]
        parts = (f"{part} {found['metrics']['f1']:.3f}" for part, found in operations.items())
        yield f"\nF1 by operation, {name}: {', '.join(parts)}."
    yield f"\n| answered · of these, right, at | {' | '.join(map(str, _THRESHOLDS))} |"
    yield f"|---|{'---|' * len(_THRESHOLDS)}"
    for name, result in results.items():
        yield _curve(name, result)
    yield f"\n| the surest {_SUREST:.0%} | Hits@1 | exactly the gold answers | those or the gold path's |"
    yield "|---|---|---|---|"
    load_graphs(home, "metaqa", 1)
    with closing(GraphCatalog(home)) as graphs:
        gold = _GoldPaths(local_tools(graphs, home))
        for name in _MERGED:
            yield _surest(name, results[name]["records"], gold)


class _GoldPaths:
    """What gold paths lead to on a graph."""

    def __init__(self, tools: GraphTools) -> None:
        recipe = load_recipe(READER)
        self._tools, self._protocol = tools, recipe.protocol.build()
        self._turns = recipe.rollout.max_turns

    def answers(self, question: Question) -> frozenset[str]:
        teacher = teacher_of(self._protocol)
        assert teacher is not None
        played = play(question, self._protocol, self._tools, teacher(question, _ITEMS), self._turns)
        return answer_set(answer.text for answer in played.answers or ())


def _surest(name: str, records: Sequence[Mapping[str, Any]], gold: _GoldPaths) -> str:
    """A row of what is right among the answers that the policy is surest of.

    Args:
        records: of all questions that were asked.
    """
    questions = {question.id: question for question in load_dataset(f"{name}@whole", 1, _data()).splits.test}
    surest = sorted(records, key=lambda record: record["confidence"] or 0.0, reverse=True)
    kept = surest[: round(_SUREST * len(records))]
    right = [is_right(record["measures"]["f1"]) for record in kept]
    agrees = [
        is_one or answer_set(record["answers"]) == gold.answers(questions[record["id"]])
        for record, is_one in zip(kept, right, strict=True)
    ]
    hits = fmean(record["measures"]["hits@1"] for record in kept)
    return f"| {name} | {hits:.3f} | {fmean(right):.3f} | {fmean(agrees):.3f} |"


def _pooled_error(results: Iterable[Mapping[str, Any]]) -> float:
    """The calibration error on at most `_QUESTIONS` of each data set."""
    asked = [record for result in results for record in _evenly_spaced(result["records"])]
    sure = [record for record in asked if record["confidence"] is not None]
    return calibration_error(
        [record["confidence"] for record in sure], [is_right(record["measures"]["f1"]) for record in sure]
    )


def _evenly_spaced(records: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    count = min(_QUESTIONS, len(records))
    return (records[place * len(records) // count] for place in range(count))


def _data() -> Path:
    return Path(os.environ["KBQA_DATA"])


def _evaluate(
    policy: str, home: Path, dataset: str, *options: str, limit: int = _QUESTIONS
) -> Mapping[str, Any]:
    file = home / "result.json"
    order = ["eval", policy, dataset, "--limit", str(limit), "--json", str(file), "--home", str(home)]
    subprocess.run(
        [sys.executable, "-m", "services.cli", *order, *options], check=True, stdout=subprocess.DEVNULL
    )
    result: dict[str, Any] = json.loads(file.read_bytes())
    return result


def _curve(name: str, result: Mapping[str, Any]) -> str:
    """A row of what is answered at each threshold, and what share of that is right."""
    points = {point["threshold"]: point for point in result["confidence"]["curve"]}
    cells = [
        f"{point['coverage']:.2f}" + ("" if point["accuracy"] is None else f" · {point['accuracy']:.2f}")
        for point in (points[threshold] for threshold in _THRESHOLDS)
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _row(name: str, result: Mapping[str, Any]) -> str:
    metrics, confidence = result["metrics"], result["confidence"]
    point = next(point for point in confidence["curve"] if point["threshold"] == _THRESHOLD)
    right = "" if point["accuracy"] is None else f"{point['accuracy']:.3f}"
    figures = (metrics["hits@1"], metrics["f1"], confidence["calibration_error"], point["coverage"])
    cells = [name, str(result["questions"]), *(f"{figure:.3f}" for figure in figures), right]
    return f"| {' | '.join(cells)} |"


def _lack(home: Path) -> None:
    """Load MetaQA's graph without the first fact of each question's path."""
    dataset = load_dataset("metaqa-1hop@whole", 1, _data())
    asked = spread(dataset.splits.test, _QUESTIONS)  # as kbqa eval does
    # A relation is removed from a topic in both directions: the reverse would be the same fact.
    gone = {(question.topic_entities[0], question.path[0].relation) for question in asked}
    kept = [
        line
        for line in dataset.graph.lines()
        if not any(
            (end, relation) in gone
            for subject, relation, object_ in [line.rstrip("\n").split("|")]
            for end in (subject, object_)
        )
    ]
    file = home / "lacking.txt"
    file.write_text("".join(kept), encoding="utf-8")
    _load(home, _LACKING, file)


def _load(home: Path, graph: str, file: Path) -> None:
    load = ["kg", "load", graph, str(file), "--home", str(home)]
    subprocess.run([sys.executable, "-m", "services.cli", *load], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

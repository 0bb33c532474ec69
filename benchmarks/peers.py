"""python -m benchmarks.peers: kbqa beside other ways to answer, on the same questions and in one run.

    ranking               the relation path whose words are most similar to the question; zero-shot
    ranking-hops-known    the same, told how many hops each question's gold path has
    nearest               the gold path of the most similar training question; all gold programs of that split
    reader                the policy that kbqa ships; zero-shot
    trained               the reader after 150 steps of training on the answers of the training split

Topic entities are given. The questions are evenly spaced over the test files of MetaQA; of PathQuestion, they
are the test split by (topic, path); those of benchmarks/natural were written by hand, about graphs that no
system has training questions for. Time is that of the processor, while one process answers. Results and runs
stay in KBQA_HOME/peers; what is there is not repeated, and an interrupted training goes on.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.curves import FOR_ONE_GRAPH
from benchmarks.multihop import ask, kbqa
from kbqa.evaluation.significance import bootstrap
from kbqa.policy_store.shipped import READER

_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
_QUESTIONS = 1000  # of a test file, at most
# Steps, not seconds, so that a slow machine trains as well as a fast one.
_STEPS = ("schedule.steps=150", "schedule.validate_every=50", "schedule.max_run_seconds=null")
NATURAL = Path(__file__).parent / "natural"
_TRAINED = "trained"


@dataclass(frozen=True, slots=True)
class System:
    """A way to answer.

    Attributes:
        supervision: what it learned from, of the graph that it is asked about.
        policy: as for `kbqa eval`; "" for the policy that is trained here.
        learns: whether it needs training questions.
    """

    supervision: str
    policy: str
    options: tuple[str, ...] = ()
    learns: bool = False


SYSTEMS: Mapping[str, System] = {
    "ranking": System("zero-shot", _ENCODER, ("--baseline", "ranking")),
    "ranking-hops-known": System(
        "zero-shot, and the number of hops", _ENCODER, ("--baseline", "ranking", "--known-hops")
    ),
    "nearest": System("gold programs", _ENCODER, ("--baseline", "nearest"), learns=True),
    "reader": System("zero-shot", READER),
    _TRAINED: System("answers", "", learns=True),
}

# What is trained on → what is asked afterwards.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "metaqa@whole": ("metaqa-1hop", "metaqa-2hop", "metaqa-3hop"),
    "pathquestion-2h@whole-1": ("pathquestion-2h@whole-1",),
    "pathquestion-3h@whole-1": ("pathquestion-3h@whole-1",),
}


def main() -> int:
    """Returns the exit code."""
    if "KBQA_DATA" not in os.environ:
        sys.stderr.write("set KBQA_DATA to the directory that holds metaqa/ and pathquestion/\n")
        return 2
    home = Path(os.environ.get("KBQA_HOME", "var")) / "peers"
    home.mkdir(parents=True, exist_ok=True)
    for line in report(home):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    return 0


def report(home: Path) -> Iterator[str]:
    """The figures of all systems, as Markdown; trains and asks what has not been."""
    yield "| questions | system | supervision | Hits@1 [95 %] | F1 | ms of a core each | beside the reader |"
    yield "|---|---|---|---|---|---|---|"
    for family, tests in FAMILIES.items():
        for test in tests:
            results = {name: [_asked(home, name, family, test)] for name in SYSTEMS}
            yield from _rows(test, results)
    graphs = sorted(NATURAL.iterdir())
    for graph in graphs:
        kbqa("kg", "load", graph.name, str(graph / "graph.tsv"), home=home)
    results = {
        name: [
            ask(
                home,
                name,
                system.policy,
                graph.name,
                *system.options,
                "--data",
                str(graph),
                limit=None,
                home=home,
            )
            for graph in graphs
        ]
        for name, system in SYSTEMS.items()
        if not system.learns and "--known-hops" not in system.options  # there is no gold path
    }
    yield from _rows("natural", results)
    yield ""
    for family in FAMILIES:
        yield _course(_run(home, family), family)


def _asked(home: Path, name: str, family: str, test: str) -> Mapping[str, Any]:
    system = SYSTEMS[name]
    policy = system.policy or _trained(home, family)
    return ask(home, name, policy, test, *system.options, limit=_QUESTIONS, home=home)


def _trained(home: Path, family: str) -> str:
    """The name of the policy that was trained on a data set; trains it unless that was done."""
    run = _run(home, family)
    if not (run / "run.json").is_file():
        order = ["--dataset", family, "--recipe", "kg-r1-reader", "--name", run.name]
        limits = ("--limit=test=0", "--limit=validation=150")
        kbqa(
            "train", *order, *limits, *(f"--set={option}" for option in (*FOR_ONE_GRAPH, *_STEPS)), home=home
        )
    elif not (run / "summary.json").is_file():
        kbqa("resume", run.name, home=home)
    versions = json.loads((run / "progress.json").read_text(encoding="utf-8"))["results"]["versions"]
    return f"{run.name}@{versions['rl']}"


def _run(home: Path, family: str) -> Path:
    return home / "runs" / family.replace("@", "-")


def _course(run: Path, family: str) -> str:
    """How long a training took."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    steps = sum(record["kind"] == "step" for record in records)
    return f"Trained on {family}: {steps} steps in {records[-1]['seconds']:.0f} s."


def _rows(test: str, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """A row of each system.

    Args:
        results: of `kbqa eval`, by system.
    """
    prices = {name: _price_ms(found) for name, found in results.items()}
    for name, found in results.items():
        records = [record for result in found for record in result["records"]]
        hits = [record["measures"]["hits@1"] for record in records]
        interval = bootstrap(hits, groups=[record["group"] for record in records])
        assert interval is not None, "there are questions"
        low, high = interval
        f1 = fmean(record["measures"]["f1"] for record in records)
        cells = [
            f"{test} ({len(records):,})",
            name,
            SYSTEMS[name].supervision,
            f"{fmean(hits):.3f} [{low:.3f}, {high:.3f}]",
            f"{f1:.3f}",
            f"{prices[name]:.0f}",
            f"{prices[name] / prices[READER]:.2f}",
        ]
        yield f"| {' | '.join(cells)} |"


def _price_ms(results: Sequence[Mapping[str, Any]]) -> float:
    """Processor time of a question, in milliseconds."""
    seconds = sum(result["processor_seconds"] for result in results)
    return float(1000 * seconds / sum(result["questions"] for result in results))


if __name__ == "__main__":
    sys.exit(main())

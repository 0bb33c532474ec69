"""python -m benchmarks.curves [SIZE …]: how well the reader answers MetaQA after minutes of training.

    1000, all      it is trained on that many question-answer pairs of all three hops for five minutes of the
                   clock, without gold programs
    50-programs    it imitates that many gold programs (recipe reader-sft), without reinforcement learning

Validation questions show the course; the test is asked once, when training is over. Runs stay in KBQA_HOME
(curve-1000, curve-50-programs), and what is interrupted goes on when it is called again.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.multihop import ask, kbqa

_SECONDS = 300
_MOMENTS = (60, 120, 180, 300)  # of training, for the table
_TESTS = ("metaqa-1hop", "metaqa-2hop", "metaqa-3hop")
_FEW = 500  # test questions of each
_JOBS = 2  # evaluations at a time, one core each
_PROGRAMS = "-programs"
_DEFAULT = ("100", "1000", "all", "10-programs", "50-programs", "200-programs")

# The values for a policy of one graph: it may forget what the reader knows of others (ADR 76), and what the
# reader's re-ranker knows helps it no more.
FOR_ONE_GRAPH = (
    "evaluation.beam=1",
    f"schedule.max_run_seconds={_SECONDS}",
    "schedule.steps=400",
    "schedule.validate_every=20",
    "optimisation.learning_rate=0.001",
    "optimisation.kl_coefficient=0",
    "optimisation.entropy_coefficient=0.1",
    "advantage.without_spread=dropped",
    "guards.patience=null",
)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    sizes = arguments or _DEFAULT
    if not all(re.fullmatch(rf"all|[1-9]\d*({_PROGRAMS})?", size) for size in sizes):
        sys.stderr.write(f"name numbers of training questions (100, all) or of programs (50{_PROGRAMS})\n")
        return 2
    if "KBQA_DATA" not in os.environ:
        sys.stderr.write("set KBQA_DATA to the directory that holds metaqa/\n")
        return 2
    home = Path(os.environ.get("KBQA_HOME", "var"))
    for size in sizes:
        _train(size, home)
    for line in report(sizes, home):
        sys.stdout.write(line + "\n")
    return 0


def _train(size: str, home: Path) -> None:
    run = home / "runs" / f"curve-{size}"
    if (run / "summary.json").is_file():
        return
    if (run / "run.json").is_file():
        kbqa("resume", run.name, home=home)
        return
    order = ["--dataset", "metaqa@whole", "--name", run.name, "--limit=test=0", "--limit=validation=150"]
    if size.endswith(_PROGRAMS):
        programs = size.removesuffix(_PROGRAMS)
        kbqa("train", *order, "--recipe=reader-sft", f"--set=cold_start.demonstrations={programs}", home=home)
        return
    pairs = [f"--limit=train={size}"] if size != "all" else []
    options = [f"--set={option}" for option in FOR_ONE_GRAPH]
    kbqa("train", *order, "--recipe=kg-r1-reader", *pairs, *options, home=home)


def report(sizes: Sequence[str], home: Path) -> Iterator[str]:
    """The course of each run, and its answers to the test questions, as Markdown."""
    moments = " | ".join(f"{moment} s" for moment in _MOMENTS)
    yield f"| learned from | before | {moments} | {' | '.join(f'test, {test}' for test in _TESTS)} |"
    yield "|---" * (2 + len(_MOMENTS) + len(_TESTS)) + "|"
    for size in sizes:
        run = home / "runs" / f"curve-{size}"
        with ThreadPoolExecutor(_JOBS) as pool:
            hits = list(pool.map(partial(_hits, run, home), _TESTS))
        cells = [*course(_validations(run), _MOMENTS), *hits]
        yield f"| {size} | {' | '.join(f'{cell:.3f}' for cell in cells)} |"


def course(validations: Sequence[tuple[float, float]], moments: Sequence[float]) -> Iterator[float]:
    """F1 before training, and at the last validation until each moment.

    Args:
        validations: seconds of training and F1, in the order of time.
        moments: in seconds.
    """
    for moment in (0.0, *moments):
        yield [f1 for seconds, f1 in validations if seconds <= moment][-1]


def _validations(run: Path) -> list[tuple[float, float]]:
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        records: list[dict[str, Any]] = [json.loads(line) for line in file]
    looks = [record for record in records if record.get("split") == "validation"]
    began = next(record["seconds"] for record in looks if record["phase"] != "rl")
    return [(max(0.0, look["seconds"] - began), look["f1"]) for look in looks]


def _hits(run: Path, home: Path, test: str) -> float:
    versions = json.loads((run / "progress.json").read_text(encoding="utf-8"))["results"]["versions"]
    phase = "cold_start" if run.name.endswith(_PROGRAMS) else "rl"
    asked = ask(run, phase, f"{run.name}@{versions[phase]}", test, limit=_FEW, home=home)
    return float(asked["metrics"]["hits@1"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

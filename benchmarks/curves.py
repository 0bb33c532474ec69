"""python -m benchmarks.curves [QUESTIONS …]: how well the reader answers MetaQA after minutes of training.

It is trained on that many question-answer pairs of all three hops (default: 100, 1,000 and all), for five
minutes of the clock, without gold programs. Validation questions show the course; the test is asked once,
when training is over. Runs stay in KBQA_HOME (curve-100, curve-1000, curve-all), and what is interrupted goes
on when it is called again.
"""

from __future__ import annotations

import json
import os
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
_DEFAULT = ("100", "1000", "all")

# The values for a policy of one graph: it may forget what the reader knows of others (ADR 76).
_OPTIONS = (
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
    if any(size != "all" and not (size.isdigit() and int(size)) for size in sizes):
        sys.stderr.write("name numbers of training questions, or: all\n")
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
    limits = [
        "--limit=test=0",
        "--limit=validation=150",
        *([f"--limit=train={size}"] if size != "all" else []),
    ]
    options = [f"--set={option}" for option in _OPTIONS]
    order = ["--dataset", "metaqa@whole", "--recipe", "kg-r1-reader", "--name", run.name]
    kbqa("train", *order, *limits, *options, home=home)


def report(sizes: Sequence[str], home: Path) -> Iterator[str]:
    """The course of each run, and its answers to the test questions, as Markdown."""
    moments = " | ".join(f"{moment} s" for moment in _MOMENTS)
    yield f"| questions | before | {moments} | {' | '.join(f'test, {test}' for test in _TESTS)} |"
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
    version = json.loads((run / "progress.json").read_text(encoding="utf-8"))["results"]["versions"]["rl"]
    asked = ask(run, "rl", f"{run.name}@{version}", test, limit=_FEW, home=home)
    return float(asked["metrics"]["hits@1"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

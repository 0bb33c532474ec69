"""python -m benchmarks.multihop NAME …: train policies on MetaQA and PathQuestion, and measure them.

    metaqa             all three hops: trained on the dev files, tested on the given test files, whole
    pathquestion-2h    split by (topic entity, relation path), a tenth of the questions for the test
    pathquestion-3h    likewise
    pathquestion-2h-random, …                              at random, as in published tables; that leaks

Answers alone, no gold program. Each is trained with three seeds, and where its publishers did not split
it, on three splits. A run sees no test question: validation questions judge it while it trains, and the
test is asked once, when it is over. Each run leaves a policy in KBQA_HOME (NAME-1, NAME-2, NAME-3), which
is also asked about the other graphs, of which it has seen nothing. What is interrupted goes on where it
was when it is called again; evaluations that are done are not repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from kbqa.evaluation.significance import bootstrap

_SEEDS = (1, 2, 3)
_FEW = 500  # questions where something stands beside the policies: other graphs, the untrained policy
_JOBS = 2  # evaluations at a time, one core each
_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"

# A long training ends with errors of which the policy is certain: at a temperature of 1 all episodes of a
# group then make the same one, and the group teaches nothing.
_TO_THE_END = ("guards.patience=null", "rollout.temperature=1.5")

# The longest training needs more. With a mean over tokens, the one or two groups of 64 that have spread in
# the end move the weights as far as all 64 did, and whole forms of questions are lost again: the denominator
# is a constant instead, the tokens of a step (64 questions, 8 episodes, 3 turns). A larger bonus on entropy
# keeps alternatives alive for longer, also where all episodes of a group go wrong alike. Nineteen of twenty
# questions are answered soon; one episode each finds the others, so that rare forms are met more often. The
# last weights count, since a few validation questions say nothing about rare forms.
_TO_THE_VERY_END = (
    *_TO_THE_END,
    "rollout.screened=true",
    "advantage.without_spread=unsolved_kept",
    "optimisation.aggregation=token_sum_norm",
    "optimisation.horizon=1536",
    "optimisation.entropy_coefficient=0.3",
    "schedule.questions_per_step=64",
    "schedule.max_in_flight=64",
    "schedule.best_by=null",
)

# A path of three hops may come back to the topic, which is then one of the answers.
_PATHQUESTION: Mapping[int, tuple[str, ...]] = {
    2: (),
    3: (
        "protocol.revisit=true",
        "schedule.steps=260",
        "schedule.max_run_seconds=570",
        "schedule.validate_every=65",
        *_TO_THE_END,
    ),
}

_METAQA = tuple(f"metaqa-{hops}hop" for hops in (1, 2, 3))
_BY_PATH = tuple(f"pathquestion-{hops}h@whole" for hops in (2, 3))

Results = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """What policies learn, and what they are asked.

    Attributes:
        dataset: what they are trained on.
        tests: data sets of its graph.
        transfer: others, of whose graphs they have seen nothing.
        options: of the recipe, that are another's here.
        is_split: whether its publishers did not split it: each seed has a split of its own then.
        published: figures of others, and where they are from.
    """

    dataset: str
    tests: tuple[str, ...]
    transfer: tuple[str, ...] = ()
    recipe: str = "kg-r1-chooser"
    limits: tuple[str, ...] = ("test=0",)
    options: tuple[str, ...] = ()
    is_split: bool = True
    published: str = ""

    def at(self, dataset: str, seed: int) -> str:
        """A data set as the run of a seed has it."""
        return f"{dataset}-{seed}" if self.is_split else dataset


TASKS: Mapping[str, Task] = {
    "metaqa": Task(
        "metaqa@whole",
        _METAQA,
        (*_BY_PATH, "world"),
        options=(
            "schedule.steps=480",
            "schedule.max_run_seconds=690",
            "schedule.validate_every=120",
            *_TO_THE_VERY_END,
        ),
        is_split=False,
        published="Hits@1 of 1, 2 and 3 hops: MINERVA (RL) 0.963, 0.929, 0.552; "
        "SRN (RL) 0.970, 0.951, 0.752; EmbedKGQA 0.975, 0.988, 0.948; NSM 0.971, 0.999, 0.989; "
        "KG-GPT (LLM) 0.963, 0.944, 0.940",
    ),
    **{
        f"pathquestion-{hops}h": Task(name, (name,), (*_METAQA, "world"), options=_PATHQUESTION[hops])
        for hops, name in zip((2, 3), _BY_PATH, strict=True)
    },
    **{
        f"pathquestion-{hops}h-random": Task(
            f"pathquestion-{hops}h@random",
            (f"pathquestion-{hops}h@random",),
            options=_PATHQUESTION[hops],
            published=published,
        )
        for hops, published in (
            (2, "Hits@1: MINERVA (RL) 0.759, SRN (RL) 0.963, IRN 0.960, QAGCN 0.985, ISM 0.991"),
            (3, "Hits@1: MINERVA (RL) 0.712, SRN (RL) 0.892, IRN 0.877, QAGCN 0.906, ISM 0.957"),
        )
    },
}


def main(names: Sequence[str]) -> int:
    """Returns the exit code."""
    unknown = [name for name in names if name not in TASKS]
    if unknown or not names:
        sys.stderr.write(f"name what to train: {', '.join(TASKS)}\n")
        return 2
    if "KBQA_DATA" not in os.environ:
        sys.stderr.write("set KBQA_DATA to the directory that holds metaqa/ and pathquestion/\n")
        return 2
    home = Path(os.environ.get("KBQA_HOME", "var"))
    for name in names:
        for seed in _SEEDS:
            _train(name, TASKS[name], seed, home)
        for line in report(name, TASKS[name], home):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


def _train(name: str, task: Task, seed: int, home: Path) -> None:
    run = home / "runs" / f"{name}-{seed}"
    if not (run / "run.json").is_file():
        order = ["--dataset", task.at(task.dataset, seed), "--recipe", task.recipe, "--seed", str(seed)]
        more = [f"--limit={limit}" for limit in task.limits] + [f"--set={option}" for option in task.options]
        kbqa("train", *order, "--name", run.name, *more, home=home)
    elif not (run / "summary.json").is_file():
        kbqa("resume", run.name, home=home)


def report(name: str, task: Task, home: Path) -> Iterator[str]:
    """The figures of the policies that have been trained, as Markdown; asks what was not asked before."""
    runs = {seed: home / "runs" / f"{name}-{seed}" for seed in _SEEDS}
    versions = {seed: _results(run)["versions"] for seed, run in runs.items()}
    everything = (*task.tests, *task.transfer)
    asked = [(dataset, seed) for dataset in everything for seed in _SEEDS]

    def evaluate(pair: tuple[str, int]) -> dict[str, Any]:
        dataset, seed = pair
        mine = dataset in task.tests
        policy = f"{runs[seed].name}@{versions[seed]['rl']}"
        where = task.at(dataset, seed) if mine else dataset
        return ask(runs[seed], "rl", policy, where, limit=None if mine else _FEW, home=home)

    def beside(dataset: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What needs no training: the policy as it began, and the ranking of paths."""
        run, mine = runs[_SEEDS[0]], dataset in task.tests
        where = task.at(dataset, _SEEDS[0]) if mine else dataset
        base = f"{run.name}@{versions[_SEEDS[0]]['base']}"
        ranking = ("--baseline", "ranking")
        return (
            ask(run, "base", base, where, limit=_FEW, home=home),
            ask(run, "ranking", _ENCODER, where, *ranking, limit=_FEW, home=home),
        )

    with ThreadPoolExecutor(_JOBS) as pool:
        found = dict(zip(asked, pool.map(evaluate, asked), strict=True))
        untrained = dict(zip(everything, pool.map(beside, everything), strict=True))
    yield f"### {name}"
    yield ""
    yield "| data set | questions | ranking | untrained | each seed | mean Hits@1 [95 %] | set F1 [95 %] |"
    yield "|---|---|---|---|---|---|---|"
    for dataset in everything:
        zero_shot = "" if dataset in task.tests else ", zero-shot"
        results = [found[dataset, seed] for seed in _SEEDS]
        yield _row(f"{dataset}{zero_shot}", results, *untrained[dataset])
    yield ""
    for run in runs.values():
        yield from _course(run)
    if task.published:
        yield f"Published: {task.published}."


def _row(dataset: str, results: Results, untrained: Mapping[str, Any], ranking: Mapping[str, Any]) -> str:
    questions = ", ".join(str(count) for count in dict.fromkeys(result["questions"] for result in results))
    seeds = ", ".join(f"{result['metrics']['hits@1']:.3f}" for result in results)
    beside = [f"{result['metrics']['hits@1']:.3f}" for result in (ranking, untrained)]
    cells = [dataset, questions, *beside, seeds, _mean(results, "hits@1"), _mean(results, "f1")]
    return f"| {' | '.join(cells)} |"


def _mean(results: Results, metric: str) -> str:
    """Over all runs, with the interval over groups of (topic, path), whichever run asked for them."""
    records = [record for result in results for record in result["records"]]
    values = [record["measures"][metric] for record in records]
    interval = bootstrap(values, groups=[record["group"] for record in records])
    assert interval is not None, "there are questions"
    low, high = interval
    return f"{fmean(values):.4f} [{low:.3f}, {high:.3f}]"


def _course(run: Path) -> Iterator[str]:
    """Time, steps, episodes and the validation along the way."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    written = json.loads((run / "run.json").read_text(encoding="utf-8"))
    recipe, steps = written["recipe"], [record for record in records if record["kind"] == "step"]
    episodes = recipe["schedule"]["questions_per_step"] * recipe["rollout"]["n"] * len(steps)
    looks = [record for record in records if record.get("split") == "validation" and record["phase"] == "rl"]
    course = ", ".join(f"{look['f1']:.3f} ({look['step']})" for look in looks)
    minutes = records[-1]["seconds"] / 60
    yield (
        f"{run.name}: {minutes:.1f} minutes of training on {os.cpu_count()} cores, {len(steps)} steps of "
        f"GRPO, {episodes:,} episodes; validation F1 {course}."
    )


def _results(run: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((run / "progress.json").read_text(encoding="utf-8"))["results"]
    return results


def ask(
    run: Path, what: str, policy: str, dataset: str, *options: str, limit: int | None, home: Path
) -> dict[str, Any]:
    """What `kbqa eval` says of a policy; kept beside the run.

    Args:
        what: names the policy in the file.
        limit: test questions; None asks all.
    """
    file = run / f"eval-{what}-{dataset.replace('@', '-')}.json"
    if not file.is_file():
        few = () if limit is None else ("--limit", str(limit))
        aside = file.with_suffix(".part")
        kbqa("eval", policy, dataset, "--json", str(aside), *few, *options, home=home)
        aside.rename(file)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def kbqa(*arguments: str, home: Path) -> None:
    """Run a command of kbqa on one core a process.

    Raises:
        subprocess.CalledProcessError: it failed; it has said why.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KBQA_HOME": str(home)}
    subprocess.run([sys.executable, "-m", "services.cli", *arguments], check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

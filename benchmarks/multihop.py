"""python -m benchmarks.multihop NAME …: train policies on MetaQA and PathQuestion, and measure them.

    metaqa             all three hops: trained on the dev files, tested on the given test files, whole
    metaqa-few         likewise, after a cold start of at most 200 trajectories: what is left to reinforcement
    pathquestion-2h    split by (topic entity, relation path), a tenth of the questions for the test
    pathquestion-2h-random, …                              at random, as in published tables; that leaks

Each leaves the policy of its name in KBQA_HOME, where `kbqa eval NAME DATASET` finds it. What is interrupted
goes on where it was when it is called again; evaluations that are done are not repeated.
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
from typing import Any

import torch
from safetensors.torch import load_file

from kbqa.evaluation.significance import bootstrap, mcnemar

_PHASES = ("base", "cold_start", "rl")
_UNTAUGHT_LIMIT = 1000  # questions to a policy that has learned nothing of them: it uses up its tokens
_JOBS = 2  # evaluations at a time, one core each


@dataclass(frozen=True, slots=True)
class Task:
    """What a policy learns, and what it is asked.

    Attributes:
        tests: data sets that it was made for.
        transfer: others, of whose graphs it has seen nothing.
        recipe: name of the one that it is trained by.
        limits: of the run: a whole test set is asked afterwards, several questions at a time.
        options: of the recipe, that are another's here.
        published: figures of others, and where they are from.
    """

    dataset: str
    tests: tuple[str, ...]
    transfer: tuple[str, ...] = ()
    recipe: str = "knowcoder-a1-pathquestion"
    limits: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    published: str = ""


_BY_PATH = tuple(f"pathquestion-{hops}h@whole" for hops in (2, 3))
_METAQA = tuple(f"metaqa-{hops}hop" for hops in (1, 2, 3))
_METAQA_LIMITS = ("validation=200", "test=300")
TASKS: Mapping[str, Task] = {
    "metaqa": Task(
        "metaqa@whole",
        _METAQA,
        _BY_PATH,
        "knowcoder-a1-multihop",
        _METAQA_LIMITS,
        published="Hits@1 of 1, 2 and 3 hops: MINERVA (RL) 0.963, 0.929, 0.552; "
        "SRN (RL) 0.970, 0.951, 0.752; EmbedKGQA 0.975, 0.988, 0.948; NSM 0.971, 0.999, 0.989; "
        "KG-GPT (LLM) 0.963, 0.944, 0.940",
    ),
    "metaqa-few": Task(
        "metaqa@whole",
        _METAQA,
        recipe="knowcoder-a1-multihop",
        limits=_METAQA_LIMITS,
        options=("cold_start.demonstrations=200", "cold_start.steps=1200", "cold_start.validate_every=400"),
    ),
    **{name.partition("@")[0]: Task(name, (name,), _METAQA) for name in _BY_PATH},
    **{
        f"pathquestion-{hops}h-random": Task(
            f"pathquestion-{hops}h@random",
            (f"pathquestion-{hops}h@random",),
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
        _train(name, TASKS[name], home)
        for line in report(name, TASKS[name], home):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


def _train(name: str, task: Task, home: Path) -> None:
    run = home / "runs" / name
    if not (run / "run.json").is_file():
        more = [f"--limit={limit}" for limit in task.limits] + [f"--set={option}" for option in task.options]
        _kbqa("train", "--dataset", task.dataset, "--recipe", task.recipe, "--name", name, *more, home=home)
    elif not (run / "summary.json").is_file():
        _kbqa("resume", name, home=home)


def report(name: str, task: Task, home: Path) -> Iterator[str]:
    """The figures of a policy that has been trained, as Markdown; asks what was not asked before."""
    run = home / "runs" / name
    versions = json.loads((run / "progress.json").read_text(encoding="utf-8"))["results"]["versions"]
    asked = [(phase, dataset) for phase in _PHASES[::-1] for dataset in task.tests]
    asked += [("rl", dataset) for dataset in task.transfer]

    def evaluate(pair: tuple[str, str]) -> dict[str, Any]:
        phase, dataset = pair
        few = phase == "base" or dataset in task.transfer
        return _evaluate(name, versions[phase], phase, dataset, few=few, home=home)

    with ThreadPoolExecutor(_JOBS) as pool:
        found = list(pool.map(evaluate, asked))
    results = dict(zip(asked, found, strict=True))
    yield f"### {name}"
    yield ""
    yield "| data set | questions | | Hits@1 [95 %] | set F1 [95 %] | tokens a question |"
    yield "|---|---|---|---|---|---|"
    for dataset in task.tests:
        for phase in _PHASES:
            yield _row(dataset, phase, results[phase, dataset])
    for dataset in task.transfer:
        yield _row(dataset, "rl, zero-shot", results["rl", dataset])
    yield ""
    for dataset in task.tests:
        yield _added(dataset, results["cold_start", dataset], results["rl", dataset])
    yield from _cost(run, home / "policies" / name / versions["rl"])
    if task.published:
        yield f"Published: {task.published}."


def _row(dataset: str, phase: str, result: Mapping[str, Any]) -> str:
    metrics, intervals = result["metrics"], result["intervals"]

    def shown(metric: str) -> str:
        low, high = intervals[metric]
        return f"{metrics[metric]:.3f} [{low:.3f}, {high:.3f}]"

    return (
        f"| {dataset} | {result['questions']} | {phase} | {shown('hits@1')} | {shown('f1')} "
        f"| {metrics['generated_tokens']:.0f} |"
    )


def _added(dataset: str, cold_start: Mapping[str, Any], rl: Mapping[str, Any]) -> str:
    """Whether reinforcement has added to the cold start, question by question."""
    before = {record["id"]: record["measures"]["hits@1"] for record in cold_start["records"]}
    gains = [record["measures"]["hits@1"] - before[record["id"]] for record in rl["records"]]
    interval = bootstrap(gains, groups=[record["group"] for record in rl["records"]])
    assert interval is not None, "there are questions"
    low, high = interval
    test = mcnemar(sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains))
    return (
        f"{dataset}, rl less cold start: {sum(gains) / len(gains):+.4f} [{low:+.4f}, {high:+.4f}] in Hits@1; "
        f"{test.ours} questions won, {test.theirs} lost, p = {test.p:.2g} (McNemar)."
    )


def _cost(run: Path, policy: Path) -> Iterator[str]:
    """Parameters, time, device, tokens, and the learning curve."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    recipe = json.loads((run / "run.json").read_text(encoding="utf-8"))["recipe"]
    ends = {record["phase"]: record for record in records}
    steps = [record for record in records if record["kind"] == "step" and record["phase"] == "rl"]
    episodes = recipe["schedule"]["questions_per_step"] * recipe["rollout"]["n"]
    sampled = sum(record["generated_tokens"] for record in steps) * episodes
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    until = ", ".join(f"{phase} until {record['seconds'] / 60:.0f}" for phase, record in ends.items())
    yield (
        f"{_parameters(policy) / 1e6:.2f} million parameters; minutes on {device}: {until}; "
        f"{len(steps)} steps of GRPO on {sampled:,.0f} sampled tokens."
    )
    looks = [record for record in records if record.get("split") == "validation"]
    yield "Validation F1: " + ", ".join(
        f"{look['f1']:.3f} ({look['phase']} {look['step']})" for look in looks
    )


def _parameters(policy: Path) -> int:
    return sum(tensor.numel() for tensor in load_file(policy / "model.safetensors").values())


def _evaluate(name: str, version: str, phase: str, dataset: str, *, few: bool, home: Path) -> dict[str, Any]:
    """What `kbqa eval` says of a version; kept beside the run."""
    file = home / "runs" / name / f"eval-{phase}-{dataset.replace('@', '-')}.json"
    if not file.is_file():
        limit = ["--limit", str(_UNTAUGHT_LIMIT)] if few else []
        aside = file.with_suffix(".part")
        _kbqa("eval", f"{name}@{version}", dataset, "--json", str(aside), *limit, home=home)
        aside.rename(file)
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _kbqa(*arguments: str, home: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KBQA_HOME": str(home)}
    subprocess.run([sys.executable, "-m", "services.cli", *arguments], check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Trains the policy that kbqa ships, and puts it into the package.

The run is that of `kbqa train --dataset worlds --recipe reader`, in var/reader. It is resumed if it was
interrupted. Then some weights of the policy's head are set by hand, a re-ranker is trained for its forms
(`reranker.py`), and its confidence is calibrated on the validation questions of worlds that it was not
trained on, of which some lack the fact that is asked for.
Its adapter is stored in half precision in kbqa/policies/reader, its digest in kbqa/bases/known.py. WordNet
must be installed (scripts/wordnet.sh).
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from reranker import WEIGHTS, train_reranker
from safetensors.torch import load_file, save_file

from kbqa.confidence import Calibration, Choices, SearchCalibration
from kbqa.datasets.catalog import load_dataset
from kbqa.datasets.dataset import Dataset
from kbqa.errors import RunNotFoundError
from kbqa.evaluation import evaluate
from kbqa.judges import Judge
from kbqa.kg.catalog import GraphCatalog
from kbqa.policies.adapters import RERANKER
from kbqa.policy_store import PolicyStore, PolicyVersion, open_store
from kbqa.policy_store.manifest import MANIFEST_NAME, RECIPE_NAME
from kbqa.policy_store.shipped import READER
from kbqa.recipes import load_recipe
from kbqa.rollouts import Agent, Player
from kbqa.rollouts.many import many_rollouts
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.training import train as run_to_its_end
from kbqa.trajectory import Question
from services.cli.candidates import open_candidate
from services.cli.graphs import load_graphs, local_tools

_EVERY_S = 30.0  # between two lines about the run
ROOT = Path(__file__).parents[1]
INTO = ROOT / "kbqa" / "policies" / "reader"
KNOWN = ROOT / "kbqa" / "bases" / "known.py"
DATASET = "worlds"
SEED = 1
# About as many questions of each kind; not the worlds that it is measured on.
CALIBRATED_ON = ((DATASET, SEED), *(("world-all", seed) for seed in (2, 3, 4)))
# A relation that is missing is read like one that is there, and two relations like one, so nothing has to be
# learned of them. Readers that were trained with the former were worse (docs/measurements/reader.md).
TRAINED_WITH = {"protocol.list_missing": False, "protocol.pass_nameless": False}
# What is set in the head, see `AttentiveHead`: how much similarities count in the logit of an option, and
# what an option loses that follows a relation backwards. Similarities count more than in training, since a
# head learns more about worlds than holds on real graphs. Both were chosen on questions of PathQuestion and
# MetaQA, from which the reader does not learn (docs/measurements/reader.md).
SET = {"direct": (1.5, 5.0, 5.0), "backwards": 2.0}
HEAD = "base_model.model.head."
NEEDED = (
    WEIGHTS,
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


def main() -> int:
    """Returns the exit code."""
    torch.set_num_threads(1)  # another number gives other digits
    home = ROOT / "var" / "reader"
    trained = train(home)
    reranker = train_reranker(home, publish(home, trained))
    shipped = publish(home, trained, reranker, calibrate(home, publish(home, trained, reranker)))
    ship(shipped)
    digest = shipped.manifest.files[WEIGHTS]
    source = KNOWN.read_text(encoding="utf-8")
    KNOWN.write_text(re.sub(r'(_READER_DIGEST = ")[0-9a-f]{64}', rf"\g<1>{digest}", source), encoding="utf-8")
    sys.stdout.write(f"{INTO.relative_to(ROOT)}: {shipped.id}, {WEIGHTS} has the SHA-256 {digest}\n")
    return 0


def train(home: Path) -> PolicyVersion:
    """The version with which the training ended; it is trained here unless that was done."""
    run, runs = f"{READER}-{SEED}", Runs(home / "runs")
    load_graphs(home, DATASET, SEED)
    try:
        directory = runs.get(run)
    except RunNotFoundError:
        directory = runs.create(load_recipe(READER, TRAINED_WITH), DATASET, SplitLimits(), SEED, run)
    if not directory.summary_path.is_file():
        over = threading.Event()
        telling = threading.Thread(target=tell, args=(directory, over))
        telling.start()
        try:
            with (
                closing(GraphCatalog(home)) as graphs,
                open_run(directory, local_tools(graphs, home)) as context,
            ):
                run_to_its_end(context)
        finally:
            over.set()
            telling.join()
    version = open_store(home).newest(run)
    assert version is not None, f"run {run} has published no version"
    return version


def tell(directory: RunDirectory, over: threading.Event) -> None:
    """Say every half minute how far a run is."""
    while not over.wait(_EVERY_S):
        progress = directory.progress()
        sys.stdout.write(f"{progress.get('phase')} {progress.get('step')}/{progress.get('of')}\n")
        sys.stdout.flush()


def publish(
    home: Path,
    trained: PolicyVersion,
    reranker: Path | None = None,
    calibration: Calibration | None = None,
) -> PolicyVersion:
    """The version with what is `SET`, in half precision.

    Args:
        reranker: directory of its re-ranker.
    """
    manifest, recipe = trained.manifest, load_recipe(READER)

    def write(into: Path) -> None:
        for name in manifest.files.keys() & set(NEEDED):
            shutil.copyfile(trained.path / name, into / name)
        weights = load_file(trained.path / WEIGHTS)
        weights |= {HEAD + name: torch.tensor(value) for name, value in SET.items()}
        save_file({name: tensor.to(torch.float16) for name, tensor in weights.items()}, into / WEIGHTS)
        if reranker is not None:
            (into / RERANKER).mkdir()
            for name in (WEIGHTS, "adapter_config.json"):
                shutil.copyfile(reranker / name, into / RERANKER / name)

    aside = home / "shipped"
    shutil.rmtree(aside, ignore_errors=True)
    return PolicyStore(aside).publish(
        READER,
        1,
        write,
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=manifest.step,
        metrics=manifest.metrics,
        base_model=manifest.base_model,
        kind=manifest.kind,
        calibration=calibration,
    )


def calibrate(home: Path, version: PolicyVersion) -> Calibration | None:
    """Fit how sure a version is on validation questions of worlds that it was not trained on.

    With a search, and without one for the policies that are trained from it.
    """
    alone, known, unknown = [list[tuple[Choices, bool]]() for _ in range(3)]
    with closing(open_candidate(str(version.path), home, None, recipe=None, baseline=None)) as candidate:
        for name, seed in CALIBRATED_ON:
            load_graphs(home, name, seed)  # in place of those of another seed
            dataset = load_dataset(name, seed)
            with closing(GraphCatalog(home)) as graphs:
                player, _ = candidate.play(local_tools(graphs, home), 0)
                known += answered(player, dataset.splits.validation, candidate.judge)
                unknown += answered(player, lacking(dataset, graphs, home), candidate.judge)
                greedy = replace(cast(Agent, player), beam=1)
                alone += answered(greedy, dataset.splits.validation, candidate.judge)
    search = SearchCalibration.fit(
        [choices for choices, _ in known],
        [right for _, right in known],
        [choices for choices, _ in unknown],
    )
    return Calibration.fit([choices for choices, _ in alone], [right for _, right in alone], search)


def answered(player: Player[Any], questions: Sequence[Question], judge: Judge) -> list[tuple[Choices, bool]]:
    """How likely the choices were that led to answers, and whether these are right."""
    episodes = many_rollouts(player, questions, 0.0, seed=SEED)
    records = evaluate(((questions[place], [episode]) for place, episode in episodes), judge).records
    return [(record.choices, record.is_right) for record in records if record.choices and record.answers]


def lacking(dataset: Dataset, graphs: GraphCatalog, home: Path) -> list[Question]:
    """Validation questions about paths, of graphs that lack the first fact of each; these are loaded."""
    asked = [question for question in dataset.splits.validation if question.path]
    gone = {(q.kg, topic, q.path[0].relation) for q in asked for topic in q.topic_entities}
    for graph in dataset.graphs:
        if graph.name not in {question.kg for question in asked}:
            continue
        file = home / f"{graph.name}-lacking.nt"
        with file.open("w", encoding="utf-8") as kept:
            for line in graph.lines():
                subject, relation, value = (
                    part.strip("<>") for part in line.removesuffix(" .").split(" ", 2)
                )
                # In both directions: the reverse would be the same fact.
                if not {(graph.name, subject, relation), (graph.name, value, relation)} & gone:
                    kept.write(f"{line}\n")
        graphs.load(file.stem, file)
    return [replace(question, kg=f"{question.kg}-lacking") for question in asked]


def ship(version: PolicyVersion) -> None:
    """Put a version into the package."""
    shutil.rmtree(INTO, ignore_errors=True)
    for name in (*version.manifest.files, MANIFEST_NAME):
        (INTO / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(version.path / name, INTO / name)
    assert (INTO / RECIPE_NAME).is_file()


if __name__ == "__main__":
    raise SystemExit(main())

"""Trains the policy that kbqa ships, and puts it into the package: reader.py [SEED].

The run is that of `kbqa train --dataset worlds --recipe reader`, in this process and in var/reader. It is
resumed if it was interrupted. Its adapter is stored in half precision in kbqa/policies/reader, and its digest
in kbqa/bases/known.py. WordNet must be installed (scripts/wordnet.sh).
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
from contextlib import closing
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from kbqa.errors import RunNotFoundError
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore, PolicyVersion, open_store
from kbqa.policy_store.manifest import MANIFEST_NAME, RECIPE_NAME
from kbqa.policy_store.shipped import READER
from kbqa.recipes import load_recipe
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.training import train as run_to_its_end
from services.cli.graphs import load_graphs, local_tools

_EVERY_S = 30.0  # between two lines about the run
ROOT = Path(__file__).parents[1]
INTO = ROOT / "kbqa" / "policies" / "reader"
KNOWN = ROOT / "kbqa" / "bases" / "known.py"
WEIGHTS = "adapter_model.safetensors"
NEEDED = (
    WEIGHTS,
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    seed = int(arguments[0]) if arguments else 1
    home = ROOT / "var" / "reader"
    trained = train(home, seed)
    shipped = ship(trained)
    digest = shipped.manifest.files[WEIGHTS]
    source = KNOWN.read_text(encoding="utf-8")
    KNOWN.write_text(re.sub(r'(_READER_DIGEST = ")[0-9a-f]{64}', rf"\g<1>{digest}", source), encoding="utf-8")
    sys.stdout.write(f"{INTO.relative_to(ROOT)}: {shipped.id}, {WEIGHTS} has the SHA-256 {digest}\n")
    return 0


def train(home: Path, seed: int) -> PolicyVersion:
    """The version with which the run of a seed ended; trains it in this process unless that was done."""
    torch.set_num_threads(1)  # another number gives other digits
    run, runs = f"{READER}-{seed}", Runs(home / "runs")
    load_graphs(home, "worlds", seed)
    try:
        directory = runs.get(run)
    except RunNotFoundError:
        directory = runs.create(load_recipe(READER), "worlds", SplitLimits(), seed, run)
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


def ship(trained: PolicyVersion) -> PolicyVersion:
    """Write a version into the package as one of its own, with weights in half precision."""
    manifest = trained.manifest

    def write(into: Path) -> None:
        for name in manifest.files.keys() & set(NEEDED):
            shutil.copyfile(trained.path / name, into / name)
        weights = load_file(trained.path / WEIGHTS)
        save_file({name: tensor.to(torch.float16) for name, tensor in weights.items()}, into / WEIGHTS)

    aside = ROOT / "var" / "reader" / "shipped"
    shutil.rmtree(aside, ignore_errors=True)
    shipped = PolicyStore(aside).publish(
        READER,
        1,
        write,
        recipe=trained.recipe(),
        recipe_digest=manifest.recipe_digest,
        step=manifest.step,
        metrics=manifest.metrics,
        base_model=manifest.base_model,
        kind=manifest.kind,
        calibration=manifest.calibration,
    )
    shutil.rmtree(INTO, ignore_errors=True)
    INTO.mkdir()
    for name in (*shipped.manifest.files, MANIFEST_NAME):
        shutil.copyfile(shipped.path / name, INTO / name)
    assert (INTO / RECIPE_NAME).is_file()
    return shipped


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

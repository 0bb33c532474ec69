"""Trains the policy that kbqa ships, and puts it into the package: reader.py [SEED].

The run is an ordinary one (`kbqa train --dataset worlds --recipe reader`) in var/reader, and is resumed if it
was interrupted. Its adapter is stored in half precision in kbqa/policies/reader, and its digest in
kbqa/bases/known.py. WordNet must be installed (scripts/wordnet.sh).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from kbqa.policy_store import PolicyStore, PolicyVersion, open_store
from kbqa.policy_store.manifest import MANIFEST_NAME, RECIPE_NAME
from kbqa.policy_store.shipped import READER

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
    """The version with which the run of a seed ended; trains it unless that was done."""
    run = f"{READER}-{seed}"
    directory = home / "runs" / run
    command = [sys.executable, "-m", "services.cli"]
    if not directory.is_dir():
        options = ["--dataset", "worlds", "--recipe", READER, "--seed", str(seed), "--name", run]
        subprocess.run([*command, "train", *options, "--home", str(home)], check=True)
    elif not (directory / "summary.json").is_file():
        subprocess.run([*command, "resume", run, "--home", str(home)], check=True)
    store = open_store(home)
    version = store.newest(run)
    assert version is not None, f"run {run} has published no version"
    store.verify(version)
    return version


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

"""Trainings by several processes, started by torchrun from a test: sharded.py DIRECTORY [SAVED RESUMED].

Rank 0 writes the result of each case of `training_cases` to DIRECTORY, and a checkpoint of its first step.
With SAVED, each case is also continued from the checkpoint in that directory; RESUMED is for these results.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from kbqa.training.checkpoints import Checkpoints
from kbqa.training.learner import begin, follow
from kbqa.training.ranks import Ranks
from kbqa.training.tensor_files import trained_parameters
from tests.unit.training.training_cases import CASES, STEPS, build, config, reference, train


def main(directory: Path, saved: Path | None = None, resumed: Path | None = None) -> None:
    torch.set_num_threads(1)
    ranks = Ranks.join()
    if ranks.rank:
        follow(ranks)
    else:
        for name, case in CASES.items():
            lead(name, case, directory, None, ranks)
            if saved is not None and resumed is not None:
                lead(name, case, resumed, saved, ranks)
    ranks.leave()


def lead(name: str, case: dict, directory: Path, saved: Path | None, ranks: Ranks) -> None:
    learner = begin(build(case), config(case), lambda: reference(case), 5, ranks)
    first, losses = 0, []
    if saved is not None:
        first = Checkpoints(saved / name, "r").restore(learner).step
    checkpoints = Checkpoints(directory / name, "r")
    for step in range(first, STEPS):
        losses.append(train(learner, case, step))
        if step == 0:
            checkpoints.save(1, learner, {})  # written while the next step is taken
    checkpoints.wait()
    learner.gather()
    weights = {key: p.detach().clone() for key, p in trained_parameters(learner.model).items()}
    save_file(weights, directory / f"{name}.safetensors")
    (directory / f"{name}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

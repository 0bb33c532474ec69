"""A training by two processes, started by torchrun from a test: two_ranks.py DIRECTORY.

`case.json` there says what to train; rank 0 writes `result.safetensors` and `result.json`.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from kbqa.training.learner import ShardedLearner, follow
from kbqa.training.ranks import Ranks
from tests.unit.training.training_cases import build, config, questions, reference


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    case = json.loads((directory / "case.json").read_text())
    ranks = Ranks.join()
    if ranks.rank:
        models = {"start": build, "reference": reference}
        follow(lambda origin: models[origin](case), config(case), ranks)
    else:
        lead(directory, case, ranks)
    ranks.leave()


def lead(directory: Path, case: dict, ranks: Ranks) -> None:
    learner = ShardedLearner(
        build(case), config(case), lambda: reference(case), 5, ranks, ("start", "reference")
    )
    losses = []
    for step in range(case["steps"]):
        for group in learner.optimiser.param_groups:
            group["lr"] = 1e-3 * (step + 1)
        losses.append(learner.update(questions(step)).metrics["loss"])
        if step == 0:  # what a checkpoint does, and a resumption from it
            learner.gather(moments=True)
            learner.scatter()
    learner.gather(moments=False)
    weights = {name: p.detach().clone() for name, p in learner.model.named_parameters() if p.requires_grad}
    save_file(weights, directory / "result.safetensors")
    (directory / "result.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

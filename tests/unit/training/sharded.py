"""Trainings by several processes of a test's own, each with the environment that torchrun would give it."""

import json
import os
import socket
from pathlib import Path

import torch
from safetensors.torch import save_file

from kbqa.training.checkpoints import Checkpoints
from kbqa.training.learner import begin, follow
from kbqa.training.ranks import Ranks
from kbqa.training.tensor_files import trained_parameters
from tests.children import Child, play
from tests.unit.training.training_cases import CASES, STEPS, build, config, reference, train


def launch(size: int, directory: Path, saved: Path | None = None, resumed: Path | None = None) -> None:
    """Train each case of `training_cases` in `size` processes.

    Args:
        directory: for each case's result, and a checkpoint of its first step.
        saved: each case is also continued from the checkpoint in this directory.
        resumed: for the results of these.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranks = [Child(target=take_part, args=(n, size, port, directory, saved, resumed)) for n in range(size)]
    assert play(*ranks) == [0] * size


def take_part(
    rank: int, size: int, port: int, directory: Path, saved: Path | None, resumed: Path | None
) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
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

"""Trainings by several processes of a test's own, each with the environment that torchrun would give it."""

import json
import os
import socket
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from safetensors.torch import save_file

from kbqa.training.checkpoints import Checkpoints
from kbqa.training.learner import begin, follow
from kbqa.training.ranks import Ranks
from kbqa.training.tensor_files import trained_parameters
from tests.children import Child, Pipe, play
from tests.unit.training.training_cases import CASES, STEPS, build, config, reference, train


def launch(size: int, directory: Path, saved: Path | None = None, resumed: Path | None = None) -> None:
    """Train each case of `training_cases` in `size` processes.

    Args:
        directory: for each case's result, and a checkpoint of its first step.
        saved: each case is also continued from the checkpoint in this directory.
        resumed: for the results of these.
    """
    port = free_port()
    ranks = [Child(target=take_part, args=(n, size, port, directory, saved, resumed)) for n in range(size)]
    assert play(*ranks) == [0] * size


def join(gpus: Sequence[int]) -> list[tuple[str, tuple[str, ...]]]:
    """Join one process for each machine, on which torch finds so many GPUs.

    Returns:
        The device of each process, and what it says that machines lack.
    """
    port, pipes = free_port(), [Pipe(duplex=False) for _ in gpus]
    ranks = [
        Child(target=tell_device, args=(rank, len(gpus), port, found, pipe[1]))
        for (rank, found), pipe in zip(enumerate(gpus), pipes, strict=True)
    ]
    assert play(*ranks) == [0] * len(gpus)
    return [reading.recv() for reading, _ in pipes]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def take_part(
    rank: int, size: int, port: int, directory: Path, saved: Path | None, resumed: Path | None
) -> None:
    be_rank(rank, size, port)
    ranks = Ranks.join()
    if ranks.rank:
        follow(ranks)
    else:
        for name, case in CASES.items():
            lead(name, case, directory, None, ranks)
            if saved is not None and resumed is not None:
                lead(name, case, resumed, saved, ranks)
    ranks.leave()


def tell_device(rank: int, size: int, port: int, gpus: int, test: Connection) -> None:
    be_rank(rank, size, port)
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    torch.cuda.is_available, torch.cuda.device_count = lambda: gpus > 0, lambda: gpus
    socket.gethostname = lambda: f"machine-{rank}"
    ranks = Ranks.join()
    if ranks.rank:
        assert ranks.hear() is None
    ranks.leave()
    test.send((ranks.device.type, ranks.lacking))


def be_rank(rank: int, size: int, port: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)


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

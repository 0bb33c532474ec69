"""Writers of checkpoints that come to grief, as processes of a test's own."""

from __future__ import annotations

import os
import resource
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from kbqa.errors import CheckpointError
from kbqa.training import checkpoints as module
from kbqa.training.checkpoints import Checkpoints
from kbqa.training.tensor_files import TrainedTensors


def die_while_replacing(directory: Path, where: str) -> None:
    """Save step 100 a second time, and end at the call of a function."""
    trained = _trained(2)
    checkpoints = Checkpoints(directory, "r")
    for step in (50, 100):
        checkpoints.save(step, trained, {"at": step})
    checkpoints.wait()
    setattr(module, where, lambda *_: os._exit(9))
    checkpoints.save(100, trained, {"at": "again"})
    checkpoints.wait()


def save_on_a_full_disk(directory: Path, test: Connection) -> None:
    """Sends the error of the second checkpoint, then what is restored and the names of what is there."""
    trained = _trained(256)
    checkpoints = Checkpoints(directory, "r")
    checkpoints.save(1, trained, {"at": 1})
    checkpoints.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # no file may grow beyond that
    try:
        checkpoints.save(2, trained, {"at": 2})
        checkpoints.wait()
    except CheckpointError as error:
        test.send(str(error))
    restored = checkpoints.restore(trained)
    test.send((restored and restored.state, sorted(path.name for path in directory.iterdir())))


def _trained(width: int) -> TrainedTensors:
    model = torch.nn.Linear(width, width)
    return TrainedTensors(model, torch.optim.AdamW(model.parameters()))

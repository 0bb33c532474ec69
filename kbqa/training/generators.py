"""Repeatable training: seeds, and the states of all global random generators as JSON.

Generators that are created from a seed where they are used (the order of questions, the seeds of
requests, demonstrations) have no state to save.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_generators(seed: int) -> None:
    """Seed all global random generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def make_deterministic() -> None:
    """Let torch compute the same numbers each time, and raise an error where it cannot."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a GPU is first used
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def generator_states() -> dict[str, Any]:
    """The states of the global generators of Python, NumPy and torch, including those of all GPUs."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=False)
    return {
        "python": [version, list(words), gauss],
        "numpy": {**numpy_state, "state": _plain(numpy_state["state"])},
        "torch": _encode(torch.get_rng_state()),
        "cuda": [_encode(state) for state in torch.cuda.get_rng_state_all()],
    }


def restore_generators(states: Mapping[str, Any]) -> None:
    """Restore all generators to the states from `generator_states`.

    A GPU without a saved state keeps its current one.

    Raises:
        KeyError, TypeError, ValueError, RuntimeError: the states are malformed.
    """
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    numpy_state = dict(states["numpy"])
    numpy_state["state"] = {**numpy_state["state"], "key": np.array(numpy_state["state"]["key"], np.uint32)}
    np.random.set_state(numpy_state)
    torch.set_rng_state(_decode(states["torch"]))
    for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
        torch.cuda.set_rng_state(_decode(state), device)


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": state["key"].tolist(), "pos": int(state["pos"])}


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)

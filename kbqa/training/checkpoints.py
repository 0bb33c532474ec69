"""Checkpoints of a training run: whole and verified, or not there.

    checkpoints/step-000005/    model.safetensors, optimiser.pt, state.json, manifest.json

Weights are safetensors; the optimiser's tensors and the random generator's state
are read with `weights_only=True`; all else is JSON. Nothing is unpickled freely.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors.torch import load_model, save_model

from kbqa.errors import CheckpointError
from kbqa.policy_store.durable import new_directory, put_in_place, remove_directory, sweep

logger = logging.getLogger(__name__)

_NAME = re.compile(r"^step-(\d{6,})$")
_MODEL, _OPTIMISER, _STATE, _MANIFEST = "model.safetensors", "optimiser.pt", "state.json", "manifest.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says beside tensors.

    Attributes:
        step: finished optimiser steps.
        state: whatever was saved with it, JSON values.
    """

    step: int
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run.

    Args:
        root: their directory.
        run: name of the run; another run's checkpoints are refused.
        keep: newest ones that are kept.
    """

    def __init__(self, root: Path, run: str, keep: int = 2) -> None:
        self._root, self._run, self._keep = root, run, keep

    def save(self, step: int, model: Any, optimiser: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        """Write a checkpoint; when this returns it is on the disk. An older one of this step gives way."""
        self._root.mkdir(parents=True, exist_ok=True)
        sweep(self._root)
        with new_directory(self._root) as directory:
            save_model(model, str(directory / _MODEL))
            tensors = {"optimiser": optimiser.state_dict(), "generator": torch.get_rng_state()}
            torch.save(tensors, directory / _OPTIMISER)
            (directory / _STATE).write_text(json.dumps(state), encoding="utf-8")
            files = {name: _checksum(directory / name) for name in (_MODEL, _OPTIMISER, _STATE)}
            manifest = {"run": self._run, "step": step, "files": files}
            (directory / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
            final = self._root / f"step-{step:06d}"
            remove_directory(final)
            put_in_place(directory, final)
        for old in self.steps()[: -self._keep]:
            remove_directory(self._root / f"step-{old:06d}")

    def steps(self) -> list[int]:
        """Steps of which there are checkpoints, oldest first."""
        if not self._root.is_dir():
            return []
        return sorted(int(match[1]) for path in self._root.iterdir() if (match := _NAME.match(path.name)))

    def restore(self, model: Any, optimiser: torch.optim.Optimizer) -> Checkpoint | None:
        """Load the newest whole checkpoint into `model`, `optimiser` and torch's random generator.

        Returns:
            What it says, or None if there is no checkpoint at all.

        Raises:
            CheckpointError: there are some, and none can be used.
        """
        steps = self.steps()
        faults = []
        for step in reversed(steps):
            try:
                return self._load(step, model, optimiser)
            except CheckpointError as error:
                logger.warning("checkpoint passed over", extra={"step": step, "reason": str(error)})
                faults.append(str(error))
        if steps:
            raise CheckpointError("; ".join(faults))
        return None

    def _load(self, step: int, model: Any, optimiser: torch.optim.Optimizer) -> Checkpoint:
        directory = self._root / f"step-{step:06d}"
        try:
            manifest = json.loads((directory / _MANIFEST).read_bytes())
            if manifest["run"] != self._run:
                raise CheckpointError(f"{directory}: of run {manifest['run']}, not {self._run}")
            for name in (_MODEL, _OPTIMISER, _STATE):
                if _checksum(directory / name) != manifest["files"][name]:
                    raise CheckpointError(f"{directory}: {name} does not match its checksum")
            tensors = torch.load(directory / _OPTIMISER, weights_only=True)
            load_model(model, str(directory / _MODEL))
            optimiser.load_state_dict(tensors["optimiser"])
            torch.set_rng_state(tensors["generator"])
            return Checkpoint(step, json.loads((directory / _STATE).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, UnpicklingError) as error:
            raise CheckpointError(f"{directory}: cannot be read ({error})") from error


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

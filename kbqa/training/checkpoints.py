"""Checkpoints of a training run, written atomically and verified by checksums.

    checkpoints/step-000005/    model.safetensors, optimiser.safetensors, state.json, manifest.json

Tensors are stored as safetensors and everything else as JSON, so that reading a checkpoint runs no
code. Frozen weights (the base of a LoRA adapter) are not stored; they come from the initial model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from kbqa.errors import CheckpointError
from kbqa.policy_store.durable import new_directory, put_in_place, remove_directory, sweep
from kbqa.training.generators import generator_states, restore_generators

logger = logging.getLogger(__name__)

_FORMAT = 2
_NAME = re.compile(r"^step-(\d{6,})$")
_MODEL, _OPTIMISER, _STATE = "model.safetensors", "optimiser.safetensors", "state.json"
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The contents of a checkpoint other than tensors.

    Attributes:
        step: finished optimiser steps.
        state: the state that was saved with it, as JSON values.
    """

    step: int
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run.

    Args:
        root: directory of the checkpoints.
        run: name of the run; another run's checkpoints are refused.
        keep: number of newest checkpoints to keep.
    """

    def __init__(self, root: Path, run: str, keep: int = 2) -> None:
        self._root, self._run, self._keep = root, run, keep

    def save(
        self,
        step: int,
        model: Any,
        optimiser: torch.optim.Optimizer,
        state: Mapping[str, Any],
        *,
        needs: Collection[int] = (),
    ) -> None:
        """Write a checkpoint durably; it replaces an earlier one of the same step.

        Args:
            state: JSON values.
            needs: steps whose checkpoints are kept as long as this one is, such as the best so far.

        Raises:
            CheckpointError: it cannot be written; checkpoints of earlier steps are unchanged.
        """
        final = self._directory(step)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            sweep(self._root)
            with new_directory(self._root) as directory:
                moments, rest = _optimiser_state(model, optimiser)
                save_file(_weights(model), directory / _MODEL)
                save_file(moments, directory / _OPTIMISER)
                values = {"state": state, "optimiser": rest, "generators": generator_states()}
                (directory / _STATE).write_text(json.dumps(values), encoding="utf-8")
                manifest = {
                    "format": _FORMAT,
                    "run": self._run,
                    "step": step,
                    "needs": sorted(needs),
                    "files": {name: _checksum(directory / name) for name in (_MODEL, _OPTIMISER, _STATE)},
                }
                (directory / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
                remove_directory(final)
                put_in_place(directory, final)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{final}: cannot be written ({error}): free some disk space, then resume the run; it "
                "continues from the previous checkpoint"
            ) from error
        self._rotate()

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in ascending order."""
        if not self._root.is_dir():
            return []
        return sorted(int(match[1]) for path in self._root.iterdir() if (match := _NAME.match(path.name)))

    def restore(
        self,
        model: Any,
        optimiser: torch.optim.Optimizer,
        on_fault: Callable[[CheckpointError], None] = lambda error: None,
    ) -> Checkpoint | None:
        """Load the newest intact checkpoint into `model`, `optimiser` and all random generators.

        Args:
            on_fault: called for each newer checkpoint that cannot be used.

        Returns:
            The checkpoint, or None if the run has none.

        Raises:
            CheckpointError: there are checkpoints, but none can be used.
        """
        steps = self.steps()
        faults = []
        for step in reversed(steps):
            try:
                return self._load(step, model, optimiser)
            except CheckpointError as error:
                logger.warning("damaged checkpoint skipped", extra={"step": step, "reason": str(error)})
                on_fault(error)
                faults.append(str(error))
        if steps:
            raise CheckpointError(
                f"no checkpoint of run {self._run} can be used ({'; '.join(faults)}): restore the files "
                f"from a backup, or delete {self._root} to start the phase again"
            )
        return None

    def load_weights(self, step: int, model: Any) -> None:
        """Load the weights of one checkpoint into `model`.

        Raises:
            CheckpointError: there is no checkpoint of that step, or it cannot be used.
        """
        if step not in self.steps():
            have = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"run {self._run} has no checkpoint of step {step} (there are: {have})")
        with _reading(self._directory(step)):
            self._verify(step)
            _set_weights(model, load_file(self._directory(step) / _MODEL))

    def _load(self, step: int, model: Any, optimiser: torch.optim.Optimizer) -> Checkpoint:
        directory = self._directory(step)
        with _reading(directory):
            self._verify(step)
            values = json.loads((directory / _STATE).read_bytes())
            moments = load_file(directory / _OPTIMISER)
            _set_weights(model, load_file(directory / _MODEL))
            _set_optimiser_state(model, optimiser, moments, values["optimiser"])
            restore_generators(values["generators"])
            return Checkpoint(step, dict(values["state"]))

    def _verify(self, step: int) -> None:
        directory = self._directory(step)
        manifest = json.loads((directory / _MANIFEST).read_bytes())
        if manifest.get("format") != _FORMAT:
            raise CheckpointError(
                f"{directory}: was written by another version of kbqa; finish the run with that version, "
                "or start another run"
            )
        if manifest["run"] != self._run:
            raise CheckpointError(f"{directory}: belongs to run {manifest['run']}, not {self._run}")
        for name in (_MODEL, _OPTIMISER, _STATE):
            if _checksum(directory / name) != manifest["files"][name]:
                raise CheckpointError(f"{directory / name}: does not match its checksum")

    def _rotate(self) -> None:
        """Remove all checkpoints but the newest and those that they need."""
        steps = self.steps()
        kept = set(steps[-self._keep :])
        for step in tuple(kept):
            try:
                kept.update(json.loads((self._directory(step) / _MANIFEST).read_bytes())["needs"])
            except (OSError, ValueError, KeyError):
                continue  # damaged; `restore` skips it
        for step in steps:
            if step not in kept:
                remove_directory(self._directory(step))

    def _directory(self, step: int) -> Path:
        return self._root / f"step-{step:06d}"


@contextmanager
def _reading(directory: Path) -> Iterator[None]:
    """Turn any error in reading a directory into a `CheckpointError` that names it."""
    try:
        yield
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{directory}: cannot be read ({error})") from error


def _trained(model: Any) -> dict[str, Tensor]:
    """The parameters that training changes, by name; tied ones once."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def _weights(model: Any) -> dict[str, Tensor]:
    return {name: value.detach().contiguous() for name, value in _trained(model).items()}


def _set_weights(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model.

    Raises:
        ValueError: their names or shapes differ from the model's.
    """
    own = _trained(model)
    if surplus := sorted(own.keys() ^ weights.keys()):
        raise ValueError(f"tensor {surplus[0]} is missing from the model or from the checkpoint")
    for name, value in own.items():
        if value.shape != weights[name].shape:
            raise ValueError(
                f"{name} has the shape {tuple(weights[name].shape)}, but the model has {tuple(value.shape)}"
            )
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])


def _optimiser_state(
    model: Any, optimiser: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's tensors as `<parameter>/<name>`, and all else as JSON values."""
    names = {id(value): name for name, value in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for parameter, entries in optimiser.state.items():
        for key, value in entries.items():
            name = f"{names[id(parameter)]}/{key}"
            if isinstance(value, Tensor):
                tensors[name] = value.detach().contiguous()
            else:
                numbers[name] = value
    groups = [
        {**group, "params": [names[id(parameter)] for parameter in group["params"]]}
        for group in optimiser.param_groups
    ]
    return tensors, {"numbers": numbers, "groups": groups}


def _set_optimiser_state(
    model: Any, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], rest: Mapping[str, Any]
) -> None:
    """The inverse of `_optimiser_state`; matches parameters by name, not by order.

    Raises:
        ValueError: the optimiser's parameter groups differ.
    """
    names = {id(value): name for name, value in model.named_parameters()}
    own = [[names[id(parameter)] for parameter in group["params"]] for group in optimiser.param_groups]
    if own != [group["params"] for group in rest["groups"]]:
        raise ValueError("the optimiser's parameters differ from the checkpoint's")
    numbers = {name: index for index, name in enumerate(name for group in own for name in group)}
    state: dict[int, dict[str, Any]] = {}
    for name, value in (*tensors.items(), *rest["numbers"].items()):
        parameter, _, key = name.rpartition("/")
        state.setdefault(numbers[parameter], {})[key] = value
    places = iter(range(len(numbers)))
    groups = [{**group, "params": [next(places) for _ in group["params"]]} for group in rest["groups"]]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

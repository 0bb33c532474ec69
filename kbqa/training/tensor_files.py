"""Weights and moments in safetensors files, which any number of processes can write and read.

torch.distributed.checkpoint divides the work: each process writes the parts of tensors that it holds, and
reads those that it needs, whoever wrote them. Its writer for Hugging Face's format makes safetensors files,
which run no code when they are read, unlike its default format.

    <key>                    tensor
    weight/NAME              a trained parameter
    exp_avg/NAME, ...        an entry of the optimiser's state for that parameter
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from kbqa.errors import CheckpointError
from kbqa.training.ranks import ALONE, Ranks

_WEIGHT = "weight"
_STEP = "step"  # AdamW counts steps on the CPU, wherever its parameters are
_FILE_BYTES = 2**30  # a file is put together in memory before it is written

# Without a process group it works alone, as intended, and warns.
warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")


class TrainedTensors:
    """The tensors that training changes: this process's part, or all of them if it trains alone.

    Args:
        model: its trained parameters are whole or, on several ranks, sharded.
        optimiser: of these parameters.
    """

    def __init__(self, model: Any, optimiser: torch.optim.Optimizer, ranks: Ranks = ALONE) -> None:
        self._model, self._optimiser, self._ranks = model, optimiser, ranks
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")

    def write(self, directory: Path) -> Future[dict[str, str]]:
        """Copy the tensors to the host, and write the copy in the background. All ranks make this call.

        Returns:
            The SHA-256 of each file by name, once all ranks have flushed theirs to the disk; or OSError.
        """
        tensors = self._tensors()
        writer = HuggingFaceStorageWriter(
            str(directory), _files(tensors, self._ranks.size), save_distributed=True
        )
        alone = self._ranks.size == 1
        written = async_save(tensors, storage_writer=writer, process_group=self._ranks.saving, no_dist=alone)
        assert isinstance(written, Future)
        return self._thread.submit(self._checksums, directory, written)

    def read(self, directory: Path, checksums: Mapping[str, str]) -> None:
        """Load what `write` wrote, on any number of ranks. All ranks make this call.

        Args:
            checksums: what `write` returned.

        Raises:
            CheckpointError: on all ranks, if the files are damaged, or do not fit the model; the weights are
                unchanged then.
        """
        for fault in self._ranks.all_of(self._fault(directory, checksums)):
            if fault is not None:
                raise CheckpointError(f"{directory}: {fault}")
        self._optimiser.state.clear()
        parameters = self._parameters
        for kind, name, size in _split(_sizes(directory)):
            if kind != _WEIGHT:
                moment = torch.zeros(size) if kind == _STEP else torch.zeros_like(parameters[name].detach())
                self._optimiser.state[parameters[name]][kind] = moment
        _load(directory, self._tensors(), self._ranks)

    @property
    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        return trained_parameters(self._model)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for name, parameter in self._parameters.items():
            tensors[f"{_WEIGHT}/{name}"] = parameter.detach()
            for kind, moment in self._optimiser.state.get(parameter, {}).items():
                tensors[f"{kind}/{name}"] = moment
        return tensors

    def _checksums(self, directory: Path, written: Future[Any]) -> dict[str, str]:
        """Checksums of the files of all ranks; each computes those of its own."""
        own: dict[str, str] | None = None
        try:
            written.result()
            mine = f"shard-{self._ranks.rank + 1:05d}-*"
            own = {path.name: checksum(path) for path in sorted(directory.glob(mine))}
        except CheckpointException as error:  # on all ranks
            raise OSError("; ".join(str(reason) for reason, _ in error.failures.values())) from error
        finally:
            found: list[Any] = [own]
            if self._ranks.size > 1:
                found *= self._ranks.size
                dist.all_gather_object(found, own, group=self._ranks.saving)
        if None in found:
            raise OSError(f"rank {found.index(None)} cannot read what it wrote")
        return {name: digest for part in found for name, digest in part.items()}

    def _fault(self, directory: Path, checksums: Mapping[str, str]) -> str | None:
        """What is wrong with this process's share of the files, or with their tensors."""
        try:
            for name in sorted(checksums)[self._ranks.rank :: self._ranks.size]:
                if checksum(directory / name) != checksums[name]:
                    return f"{name} does not match its checksum"
            return _misfit(_sizes(directory), self._parameters)
        except (OSError, SafetensorError) as error:
            return f"cannot be read by rank {self._ranks.rank} ({error})"


def read_weights(directory: Path, model: Any) -> None:
    """Load the weights alone into a whole model, in this process alone.

    Raises:
        ValueError: they do not fit the model, which is unchanged then.
        OSError, SafetensorError: they cannot be read.
    """
    parameters = trained_parameters(model)
    if (misfit := _misfit(_sizes(directory), parameters)) is not None:
        raise ValueError(misfit)
    _load(directory, {f"{_WEIGHT}/{name}": p.detach() for name, p in parameters.items()}, ALONE)


def trained_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    """The parameters that training changes, by name; tied ones once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load(directory: Path, tensors: dict[str, Tensor], ranks: Ranks) -> None:
    reader = HuggingFaceStorageReader(str(directory))
    try:
        load(tensors, storage_reader=reader, process_group=ranks.idle, no_dist=ranks.size == 1)
    except CheckpointException as error:
        reasons = "; ".join(str(reason) for reason, _ in error.failures.values())
        raise CheckpointError(f"{directory}: cannot be read ({reasons})") from error


def _sizes(directory: Path) -> dict[str, torch.Size]:
    """The shapes of the whole tensors, by key."""
    metadata = HuggingFaceStorageReader(str(directory)).read_metadata()
    return {key: tensor.size for key, tensor in metadata.state_dict_metadata.items()}  # type: ignore[union-attr]


def _misfit(sizes: Mapping[str, torch.Size], parameters: Mapping[str, Tensor]) -> str | None:
    """Why tensors are not those of a model; None if they are."""
    weights = {name: size for kind, name, size in _split(sizes) if kind == _WEIGHT}
    if surplus := sorted(parameters.keys() ^ weights.keys()):
        return f"tensor {surplus[0]} is missing from the model or from the checkpoint"
    for kind, name, size in _split(sizes):
        own = parameters[name].shape if name in parameters else None
        if own is None or (kind != _STEP and size != own):
            return f"{name} has the shape {tuple(size)}, but the model has {own and tuple(own)}"
    return None


def _split(sizes: Mapping[str, torch.Size]) -> Iterator[tuple[str, str, torch.Size]]:
    for key, size in sizes.items():
        kind, _, name = key.partition("/")
        yield kind, name, size


def _files(tensors: Mapping[str, Tensor], processes: int) -> dict[str, int]:
    """The number of the file, from 1, that each tensor goes to; every process has files of these numbers."""
    numbers, number, room = {}, 1, _FILE_BYTES
    for key, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size() // processes
        if size > room and room < _FILE_BYTES:
            number, room = number + 1, _FILE_BYTES
        room -= size
        numbers[key] = number
    return numbers

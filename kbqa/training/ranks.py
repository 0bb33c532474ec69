"""Processes that train one model together: sharded weights, shared batches, the same result.

Started by torchrun, which gives each its rank. Weights, gradients and the optimiser's moments
are sharded over all of them (FSDP2); every process makes the same calls, and each computes its
share of the rows of a batch. All that concerns queues, files and people is the business of rank 0.

On processors the processes talk through gloo, on GPUs through NCCL.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)

# Between two batches the others wait for rank 0, which waits for rollouts. If it dies torchrun ends them.
# While they compute together nobody waits for long, and a process that hangs has to be noticed.
_LONGEST_IDLE = timedelta(days=7)
_LONGEST_WAIT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Attributes:
    rank: of this process, from 0.
    size: processes; 1 is one that trains alone.
    device: on which this one computes.
    idle: the processes once more, as a group that may wait for a long time; None for one alone.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    idle: dist.ProcessGroup | None = None

    @classmethod
    def join(cls) -> Ranks:
        """Meet the other processes that torchrun has started; alone if it has started none."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        gpus = torch.cuda.is_available()
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpus else torch.device("cpu")
        if gpus:
            torch.cuda.set_device(device)
        if size == 1:
            return cls(device=device)
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", timeout=_LONGEST_WAIT)
        idle = dist.new_group(backend="gloo", timeout=_LONGEST_IDLE)
        return cls(dist.get_rank(), size, device, idle)

    def leave(self) -> None:
        """Part from the others; rank 0 thereby tells them to. Nothing sharded may be used after it.

        The order matters: modules and optimisers have to be gone, since their hooks hold the process
        group; then a barrier, since whoever ends the group while another still sends aborts that one.
        """
        if self.size == 1:
            return
        if self.rank == 0:
            self._broadcast(b"")
        gc.collect()
        dist.barrier(self.idle)
        dist.destroy_process_group()

    def shard(self, module: M, layers: Iterable[nn.Module]) -> M:
        """Shard parameters in place: those of each layer for themselves, all others with the root."""
        for layer in layers:
            fully_shard(layer)
        fully_shard(module)
        return module

    def share(self, items: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """This process's items, and whether each counts.

        Every process gets as many, since gathering parameters needs all of them; an item that
        does not count is there for that alone.
        """
        rounds = -(-len(items) // self.size)
        for turn in range(rounds):
            index = turn * self.size + self.rank
            yield (items[index], True) if index < len(items) else (items[0], False)

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes, which give the same names in the same order."""
        if self.size == 1:
            return dict(values)
        sums = torch.tensor(list(values.values()), dtype=torch.float64)
        dist.all_reduce(sums)
        return dict(zip(values, sums.tolist(), strict=True))

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send JSON values from rank 0 to the others, each of which has to `hear`."""
        self._broadcast(json.dumps(message).encode())

    def hear(self) -> dict[str, Any] | None:
        """What rank 0 tells, however long that takes; None once it leaves."""
        message: dict[str, Any] | None = json.loads(self._broadcast() or b"null")
        return message

    def shared(self, source: Tensor, like: Tensor | None) -> Tensor:
        """What rank 0 has in `source`, sharded as `like` is; of the others' only the shape matters."""
        source = source.detach().clone()
        if isinstance(like, DTensor):
            return distribute_tensor(source.to(self.device), like.device_mesh, like.placements)
        dist.broadcast(source, src=0, group=self.idle)
        return source

    def _broadcast(self, data: bytes = b"") -> bytes:
        length = torch.tensor(len(data))
        dist.broadcast(length, src=0, group=self.idle)
        if not length:
            return b""
        buffer = torch.empty(int(length), dtype=torch.uint8)
        if self.rank == 0:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        dist.broadcast(buffer, src=0, group=self.idle)
        return buffer.numpy().tobytes()


ALONE = Ranks()


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its shards, on the CPU; every process has to ask for it."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().cpu()

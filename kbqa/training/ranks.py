"""Processes that train one model together, with the same result as a single process.

torchrun starts the processes, on one machine or several, and gives each its rank. Weights, gradients and
the optimiser's moments are sharded over all of them (FSDP2). Every process makes the same calls and computes
its share of the rows of a batch. Only rank 0 handles queues and output to people; of the files, the others
touch only their parts of checkpoints.

On CPUs the processes communicate through gloo, on GPUs through NCCL.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor

from kbqa.training.likelihood import Precision

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)

# Between two batches the others wait for rank 0, which waits for rollouts; if it dies, torchrun ends them.
# During a computation no process waits for long, so a short limit reveals one that hangs.
_LONGEST_IDLE = timedelta(days=7)
_LONGEST_WAIT = timedelta(minutes=10)
_TINY = 1e-6  # beside a norm that may be zero


@dataclass(frozen=True, slots=True)
class Ranks:
    """The processes of a training run, and this one's place among them.

    Attributes:
        rank: rank of this process, from 0.
        size: number of processes; 1 for a process that trains alone.
        device: device of this process.
        idle: a second group of the same processes, with a long timeout for the wait between batches;
            None for a process that trains alone.
        saving: a third group, for the threads that write checkpoints while the model is trained.
        lacking: if some of the processes have a GPU of their own and others have none, what each machine of
            the others has, for people. Then all have joined on the CPU, and there is nothing to train on.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    idle: dist.ProcessGroup | None = None
    saving: dist.ProcessGroup | None = None
    lacking: tuple[str, ...] = ()

    @classmethod
    def join(cls) -> Ranks:
        """Join the other processes that torchrun has started; without any, train alone.

        On GPUs, if each process has one of its own; otherwise on the CPU.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls(device=_enter(0 if torch.cuda.is_available() else None))
        store, rank, size = next(rendezvous("env://", timeout=_LONGEST_WAIT))
        gpus, lacking = _agree(store, rank, size)
        device = _enter(int(os.environ["LOCAL_RANK"]) if gpus else None)
        backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
        dist.init_process_group(backend, timeout=_LONGEST_WAIT, store=store, rank=rank, world_size=size)
        idle = dist.new_group(backend="gloo", timeout=_LONGEST_IDLE)
        saving = dist.new_group(backend="gloo", timeout=_LONGEST_IDLE)
        return cls(rank, size, device, idle, saving, lacking)

    @property
    def devices(self) -> str:
        """The devices of all processes, for people: `cpu`, `NVIDIA H100 80GB HBM3`, `8 × NVIDIA H100 …`."""
        name = "cpu" if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)
        return name if self.size == 1 else f"{self.size} × {name}"

    def leave(self) -> None:
        """Leave the group; rank 0 first tells the others to leave. Nothing sharded may be used afterwards.

        The order matters. Modules and optimisers must be freed first, because their hooks hold the
        process group. The barrier follows, because a process that destroys the group aborts any other
        that is still sending.
        """
        if self.size == 1:
            return
        if self.rank == 0:
            self._broadcast(b"")
        gc.collect()
        dist.barrier(self.idle)
        dist.destroy_process_group()

    def shard(self, module: M, layers: Iterable[nn.Module], precision: Precision = "fp32") -> M:
        """Shard parameters in place: each layer by itself, all other parameters with the root module.

        Args:
            module: may be on the meta device: without storage, until `to_empty` and `fill`.
            precision: of matrix products; see `layer_policy`.
        """
        for layer in layers:
            fully_shard(layer, mp_policy=layer_policy(precision, self.device))
        fully_shard(module)
        return module

    def fill(self, module: nn.Module, source: nn.Module | None) -> None:
        """Copy parameters and buffers from a whole module on rank 0 into sharded ones on all ranks.

        One tensor at a time is on its way, and each process receives only its part of it.

        Args:
            module: its contents are replaced.
            source: the whole module, with the same names; None on all ranks but the first.
        """
        wholes = {} if source is None else dict((*source.named_parameters(), *source.named_buffers()))
        with torch.no_grad():
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if name in wholes:
                    whole_tensor = wholes[name].detach().to(self.device)
                else:
                    whole_tensor = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
                if isinstance(tensor, DTensor):
                    tensor.copy_(distribute_tensor(whole_tensor, tensor.device_mesh, tensor.placements))
                else:
                    dist.broadcast(whole_tensor, src=0)
                    tensor.copy_(whole_tensor)

    def share(self, items: Sequence[T]) -> Iterator[tuple[T, bool]]:
        """This process's items, and whether each counts.

        All processes get the same number, because gathering parameters needs all processes; an item
        that does not count only makes up the number.
        """
        rounds = -(-len(items) // self.size)
        for turn in range(rounds):
            index = turn * self.size + self.rank
            yield (items[index], True) if index < len(items) else (items[0], False)

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over all processes, which pass the same names in the same order."""
        if self.size == 1:
            return dict(values)
        sums = self.total(torch.tensor(list(values.values()), dtype=torch.float64))
        return dict(zip(values, sums.tolist(), strict=True))

    def largest(self, value: float) -> float:
        """The largest of all processes' values."""
        if self.size == 1:
            return value
        values = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values.item()

    def total(self, values: Tensor) -> Tensor:
        """The sum of each process's tensor, in place; all pass the same shape."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    @torch.no_grad()
    def clip_gradients(self, parameters: Iterable[nn.Parameter], most: float) -> float:
        """Scale gradients to a norm of at most `most`; returns the norm that they had.

        Squares are summed in double precision: rounded to single precision, the norm of shards is that of
        whole gradients, whatever the number of processes.
        """
        gradients = [_own(parameter.grad) for parameter in parameters if parameter.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients])
        norm = self.total(norms.square().sum()).sqrt()
        scale = (most / (norm + _TINY)).clamp(max=1.0).float()
        for gradient in gradients:
            gradient.mul_(scale)
        return norm.item()

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send picklable values from rank 0 to the others, each of which must call `hear`."""
        self._broadcast(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def hear(self) -> dict[str, Any] | None:
        """Wait for a message from rank 0, however long that takes; None once it leaves."""
        data = self._broadcast()
        return pickle.loads(data) if data else None

    def all_of(self, value: T) -> list[T]:
        """The values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.idle)
        return values

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


def _agree(store: Store, rank: int, size: int) -> tuple[bool, tuple[str, ...]]:
    """Whether each process has a GPU of its own, and `Ranks.lacking`; the same for all processes.

    They agree before they open groups: with different backends, each would wait for the others in vain.
    """
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    store.set(f"gpus/{rank}", json.dumps([socket.gethostname(), found, here]))
    machines = [json.loads(store.get(f"gpus/{other}")) for other in range(size)]
    lacking = {f"{name}: {gpus} of {of} GPUs" for name, gpus, of in machines if gpus < of}
    if lacking and any(gpus for _, gpus, _ in machines):
        return False, tuple(sorted(lacking))
    return not lacking, ()


def _enter(gpu: int | None) -> torch.device:
    """Make a GPU this process's device, or the CPU if it has none."""
    if gpu is None:
        return torch.device("cpu")
    torch.cuda.set_device(gpu)
    torch.set_float32_matmul_precision("high")  # TF32 where autocast leaves fp32
    return torch.device("cuda", gpu)


def layer_policy(precision: Precision, device: torch.device) -> MixedPrecisionPolicy:
    """The precisions in which the parameters of a layer are gathered, and its gradients summed.

    With bf16 on GPUs, parameters are gathered in bf16, which autocast would round them to anyway, and halves
    the traffic; gradients are summed in fp32. What is not part of a layer (embeddings, the head) stays fp32,
    and so do inputs: the residual stream of a model in one process is fp32, too.
    """
    if precision == "bf16" and device.type == "cuda":
        return MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    return MixedPrecisionPolicy()


def _own(tensor: Tensor) -> Tensor:
    """This process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """A whole tensor from its shards; every process must make this call."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach()

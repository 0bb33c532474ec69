"""The machine that a plan is made for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

GIB, MIB = 2**30, 2**20

_CGROUP = Path("/sys/fs/cgroup/memory.max")
# Of a GPU's memory: what is left beside the CUDA context, NCCL's buffers and the allocator's gaps.
_USABLE_ON_GPU = 0.94
# Of a host's memory: what is left beside the other services and the libraries of the processes.
_USABLE_ON_HOST = 0.85


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a recipe is trained.

    Attributes:
        kind: `cuda`, or `cpu` for a machine whose processes share the host's memory.
        devices: GPUs of a node, or processes on a CPU-only machine.
        memory: bytes of each GPU, or of the host.
        nodes: number of equal nodes.
        host: bytes of the memory of each host with GPUs; None if that is not known.
    """

    kind: Literal["cuda", "cpu"]
    devices: int
    memory: int
    nodes: int = 1
    host: int | None = None

    @property
    def ranks(self) -> int:
        """Processes that share the training."""
        return self.devices * self.nodes

    def usable(self, on_host: int) -> int:
        """Bytes that each process may use for the training step.

        Args:
            on_host: what the processes of a node hold on the host besides; GPUs have memory of their own.
        """
        if self.kind == "cuda":
            return int(self.memory * _USABLE_ON_GPU)
        return int((self.memory * _USABLE_ON_HOST - on_host) / self.devices)

    @property
    def usable_on_host(self) -> int | None:
        """Bytes that the processes of a node with GPUs may hold on the host; None if that is not known."""
        return None if self.host is None else int(self.host * _USABLE_ON_HOST)

    def __str__(self) -> str:
        memory = f"{self.memory / GIB:.0f} GiB"
        nodes = "" if self.nodes == 1 else f", {self.nodes} nodes"
        if self.kind == "cuda":
            return f"{self.devices} GPU{'s' * (self.devices > 1)} of {memory}{nodes}"
        return f"CPU, {memory}{nodes}"


def host_for(on_host: int) -> int:
    """Bytes of memory of a host on which so many are usable."""
    return int(on_host / _USABLE_ON_HOST)


def machine_here(processes: int | None = None, nodes: int = 1) -> Machine:
    """This machine, or as many like it as there are nodes.

    Args:
        processes: training processes of each; None means one for each GPU, and one without GPUs.
    """
    import torch

    if torch.cuda.is_available():
        sizes = [
            torch.cuda.get_device_properties(index).total_memory for index in range(torch.cuda.device_count())
        ]
        gpus = min(processes or len(sizes), len(sizes))
        return Machine("cuda", gpus, min(sizes), nodes, host_memory())
    return Machine("cpu", processes or 1, host_memory(), nodes)


def host_memory() -> int:
    """Bytes of memory of this host, or of the container that this process runs in."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP.read_text().strip()
    except OSError:
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory

"""Counts the memory of a computation on fake tensors, which have shapes and no storage."""

from __future__ import annotations

import weakref
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_READ_SCALAR = torch.ops.aten._local_scalar_dense.default


class Scalars(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Answers 1 to whoever reads the value of a fake tensor: metrics, and the check that a loss is finite."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return 1.0 if func is _READ_SCALAR else func(*args, **(kwargs or {}))


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts bytes of live storages while it is active.

    Args:
        vocabulary: number of logits of a token; a matrix [M, vocabulary] counts as logits.

    Attributes:
        peak: maximum of live bytes since `restart`.
        logits: bytes of logits at that moment.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._vocabulary = vocabulary
        self._sizes: dict[int, tuple[weakref.ref[Any], int, bool]] = {}
        self._live = self._live_logits = 0
        self.peak = self.logits = 0

    def restart(self) -> None:
        """Forget the peak."""
        self.peak, self.logits = self._live, self._live_logits

    def watch(self, tensor: Tensor) -> None:
        """Count a tensor that was made elsewhere."""
        if isinstance(tensor, DTensor):  # its own storage, of the whole tensor's size, does not exist
            tensor = tensor._local_tensor
        storage = tensor.untyped_storage()
        if id(storage) in self._sizes:
            return
        key, is_logits = id(storage), tensor.ndim == 2 and tensor.shape[1] == self._vocabulary
        self._sizes[key] = (weakref.ref(storage, lambda _: self._set(key, None)), 0, is_logits)
        self._set(key, storage.nbytes())

    def __enter__(self) -> Self:
        # FSDP frees and allocates gathered parameters by resizing their storages, which dispatches nothing.
        self._resize = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = self._resize(storage, size)
            if id(storage) in self._sizes:
                self._set(id(storage), size)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.watch(leaf)
        return result

    def _set(self, key: int, size: int | None) -> None:
        """Note the size of a storage; None once it is gone."""
        reference, before, is_logits = self._sizes.pop(key)
        if size is not None:
            self._sizes[key] = (reference, size, is_logits)
        change = (size or 0) - before
        self._live += change
        self._live_logits += change if is_logits else 0
        if self._live > self.peak:
            self.peak, self.logits = self._live, self._live_logits

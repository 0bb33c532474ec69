"""Writes a model's weights in the precision that engines compute in, and hashes them while writing.

The format (https://huggingface.co/docs/safetensors) is written here, because the library writes from memory
that holds the whole file, and tells nobody what passes through.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from kbqa.policies.chooser.model import Chooser
from kbqa.policies.probe import Precision
from kbqa.training.adapters import has_adapter

_WEIGHTS = "model.safetensors"
_OFFLINE = "HF_HUB_OFFLINE"
_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}


def save_weights(model: Any, directory: Path, precision: Precision = "float32") -> dict[str, str]:
    """Write a model's configuration and weights as an ordinary Hugging Face directory.

    A model with an adapter is its adapter.

    Args:
        precision: of floating-point weights in the files.

    Returns:
        SHA-256 of files, by name, as far as they were hashed while they were written.
    """
    dtype = getattr(torch, precision)
    if isinstance(model, Chooser):
        with _offline():
            model.save_pretrained(directory)
        return {}
    if has_adapter(model):
        trained = {name: p.detach().to(dtype) for name, p in model.named_parameters() if p.requires_grad}
        with _offline():
            model.save_pretrained(directory, state_dict=trained)
        return {}
    config = copy.deepcopy(model.config)
    config.dtype, config.architectures = precision, [type(model).__name__]
    config.save_pretrained(directory)
    model.generation_config.save_pretrained(directory)
    return {_WEIGHTS: write_tensors(directory / _WEIGHTS, file_tensors(model), dtype)}


@contextmanager
def _offline() -> Iterator[None]:
    """Keep peft from asking Hugging Face's hub about an adapter's base model, which it does at each save."""
    before = os.environ.get(_OFFLINE)
    os.environ[_OFFLINE] = "1"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Could not find a config file")  # it warns that it cannot ask
            yield
    finally:
        if before is None:
            del os.environ[_OFFLINE]
        else:
            os.environ[_OFFLINE] = before


def file_tensors(model: Any) -> dict[str, Tensor]:
    """A model's weights under the names that they have in files; of tied weights only one."""
    tensors: dict[str, Tensor] = remove_tied_weights_from_state_dict(model.state_dict(), model)
    return dict(revert_weight_conversion(model, tensors))


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor on the host, in `dtype` if it holds floating-point numbers."""
    tensor = tensor.detach()
    return tensor.to("cpu", dtype if tensor.is_floating_point() else tensor.dtype).contiguous()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> str:
    """Write a safetensors file, and return its SHA-256; one tensor at a time is in memory twice."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in _parts(tensors, dtype):
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def _parts(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Iterator[memoryview | bytes]:
    """The file in pieces: the length of the header, the header, each tensor."""
    kinds = [dtype if tensor.is_floating_point() else tensor.dtype for tensor in tensors.values()]
    sizes = [prod(t.shape) * kind.itemsize for t, kind in zip(tensors.values(), kinds, strict=True)]
    ends = list(accumulate(sizes))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, tensor), kind, size, end in zip(tensors.items(), kinds, sizes, ends, strict=True):
        entry = {"dtype": _NAMES[kind], "shape": list(tensor.shape), "data_offsets": [end - size, end]}
        header[name] = entry
    data = json.dumps(header).encode()
    data += b" " * (-len(data) % 8)  # tensors begin at multiples of eight
    yield len(data).to_bytes(8, "little")
    yield data
    for tensor in tensors.values():
        yield rounded(tensor, dtype).flatten().view(torch.uint8).numpy().data

"""Differences between two versions: fields of their manifests, and how far each tensor has moved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kbqa.errors import PolicyIntegrityError
from kbqa.policy_store.store import PolicyVersion
from kbqa.policy_store.tensors import Tensors

_SELF_EVIDENT = {"id", "sha256", "files", "created_at", "probe"}
_CHUNK = 2**22  # numbers compared at a time, so that memory stays bounded


@dataclass(frozen=True, slots=True)
class TensorChange:
    """How far a tensor has moved.

    Attributes:
        norm: Euclidean norm of the difference.
        relative: `norm` divided by the old tensor's norm; infinite if only the old tensor is zero.
    """

    name: str
    shape: tuple[int, ...]
    norm: float
    relative: float


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes from one version to another.

    Attributes:
        fields: fields of the manifest that differ, with both values; each metric is one, as `metrics.f1`.
        tensors: tensors that both have in the same shape, in order of their names.
        added, removed: tensors that one of the two lacks, or has in another shape.
        files: other files that differ.
    """

    fields: dict[str, tuple[Any, Any]]
    tensors: tuple[TensorChange, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    files: tuple[str, ...]


def compare(old: PolicyVersion, new: PolicyVersion) -> Changes:
    """The changes from `old` to `new`, whose files must both be local.

    Raises:
        PolicyIntegrityError: weights are not safetensors.
    """
    before, after = _fields(old), _fields(new)
    fields = {
        name: (before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }
    first, second = Tensors(old.path), Tensors(new.path)
    both = [name for name in first.names if second.shape(name) == first.shape(name)]
    paths = {*old.manifest.files, *new.manifest.files}
    return Changes(
        fields=fields,
        tensors=tuple(_change(name, first, second) for name in both),
        added=tuple(name for name in second.names if name not in both),
        removed=tuple(name for name in first.names if name not in both),
        files=tuple(
            path
            for path in sorted(paths)
            if not path.endswith(".safetensors")
            and old.manifest.files.get(path) != new.manifest.files.get(path)
        ),
    )


def _fields(version: PolicyVersion) -> dict[str, Any]:
    values = version.manifest.model_dump(exclude=_SELF_EVIDENT)
    metrics = values.pop("metrics")
    return values | {f"metrics.{name}": value for name, value in metrics.items()}


def _change(name: str, old: Tensors, new: Tensors) -> TensorChange:
    size = math.prod(old.shape(name) or ())
    moved, was = 0.0, 0.0
    for start in range(0, size, _CHUNK):
        before, after = old.numbers(name, start, _CHUNK), new.numbers(name, start, _CHUNK)
        moved += float(np.square(after - before).sum())
        was += float(np.square(before).sum())
    norm = math.sqrt(moved)
    relative = norm / math.sqrt(was) if was else (math.inf if norm else 0.0)
    shape = old.shape(name)
    if shape is None:
        raise PolicyIntegrityError(f"no tensor {name}")
    return TensorChange(name, shape, norm, relative)

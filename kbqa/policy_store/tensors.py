"""Reads the tensors of safetensors files without a tensor library.

The format (https://huggingface.co/docs/safetensors): eight bytes with the header's length, the header
as JSON (`{name: {dtype, shape, data_offsets}}`), the data. The safetensors library is not used here, because
numpy has no bfloat16.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kbqa.errors import PolicyIntegrityError

_LONGEST_HEADER = 100_000_000  # bytes, as in the library
_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # the upper half of an F32
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "<u1",
}


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Tensors:
    """All tensors in a directory's safetensors files.

    Raises:
        PolicyIntegrityError: a file is not in this format.
    """

    def __init__(self, directory: Path) -> None:
        self._entries: dict[str, _Entry] = {}
        for path in sorted(directory.rglob("*.safetensors")):
            try:
                self._entries |= _read_header(path)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise PolicyIntegrityError(f"{path}: not a safetensors file ({error})") from error

    @property
    def names(self) -> list[str]:
        return sorted(self._entries)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor; None if there is no such tensor."""
        entry = self._entries.get(name)
        return None if entry is None else entry.shape

    def numbers(self, name: str, start: int, count: int) -> npt.NDArray[np.float64]:
        """At most `count` numbers of a flattened tensor, from index `start`."""
        entry = self._entries[name]
        kind = np.dtype(_TYPES[entry.dtype])
        count = min(count, math.prod(entry.shape) - start)
        with entry.path.open("rb") as file:
            file.seek(entry.offset + start * kind.itemsize)
            raw = np.frombuffer(file.read(count * kind.itemsize), dtype=kind)
        if entry.dtype == "BF16":
            raw = (raw.astype("<u4") << 16).view("<f4")
        return raw.astype(np.float64)


def _read_header(path: Path) -> dict[str, _Entry]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
            raise ValueError(f"a header of {length} bytes does not fit a file of {size} bytes")
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    entries = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        shape = tuple(int(n) for n in entry["shape"])
        width = np.dtype(_TYPES[entry["dtype"]]).itemsize
        if not 0 <= begin <= end <= size - 8 - length or end - begin != math.prod(shape) * width:
            raise ValueError(f"tensor {name}: bytes {begin} to {end} do not fit its shape")
        entries[name] = _Entry(path, entry["dtype"], shape, 8 + length + begin)
    return entries

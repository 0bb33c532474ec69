"""Files of demonstrations, one per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from kbqa.cold_start.demonstrations import Demonstration
from kbqa.errors import DatasetError

T = TypeVar("T")


BY_GOLD_PROGRAMS = frozenset({"gold", "referenced", "narrated"})
"""Methods that follow gold programs."""


@dataclass(frozen=True, slots=True)
class DemonstrationEntry:
    """A demonstration and where it comes from.

    Attributes:
        protocol: name of its dialect.
        method: how it was made, for instance outcome; see `kbqa.cold_start.collecting`.
        teacher: name of what wrote its turns.
    """

    demonstration: Demonstration
    protocol: str
    method: str
    teacher: str


_ENTRY = TypeAdapter(DemonstrationEntry)


def write_entries(path: Path, entries: Iterable[DemonstrationEntry]) -> None:
    """Write a file of demonstrations atomically.

    Raises:
        DatasetError: it cannot be written.
    """
    aside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            for entry in entries:
                file.write(_ENTRY.dump_json(entry) + b"\n")
        aside.replace(path)
    except OSError as error:
        raise DatasetError(f"{path} cannot be written: {error.strerror}") from error


def read_entries(path: Path) -> list[DemonstrationEntry]:
    """The demonstrations of a file.

    Raises:
        DatasetError: it cannot be read; names the line and the reason.
    """
    entries = list(read_lines(path, _ENTRY))
    if not entries:
        raise DatasetError(f"{path}: the file holds no demonstrations")
    return entries


def read_lines(path: Path, kind: TypeAdapter[T]) -> Iterator[T]:
    """The values of a file that holds one JSON value per line.

    Raises:
        DatasetError: the file cannot be read, or a line is invalid; names the line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield kind.validate_json(line)
                except ValidationError as error:
                    fault = error.errors()[0]
                    where = ".".join(map(str, fault["loc"])) or "the line"
                    raise DatasetError(f"{path}:{number}: {where}: {fault['msg']}") from None
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise DatasetError(f"{path}: the text is not UTF-8") from None

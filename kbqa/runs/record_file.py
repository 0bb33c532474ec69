"""Reads a run's `metrics.jsonl` in parts, from its end or from where it was read to before; cuts its end."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

Record = dict[str, Any]

_SEQ = re.compile(rb'\{"seq": (\d+)[,}]')
_BLOCK = 2**16  # bytes


class RecordFile:
    """Records, one a line, numbered by `seq`. The last line may be half written and is then ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def since(self, seq: int) -> list[Record]:
        """Records numbered above `seq`, oldest first."""
        return _parsed(takewhile(lambda line: _seq(line) > seq, self._lines()))

    def newest(self, count: int) -> list[Record]:
        """So many records, oldest first."""
        return _parsed(islice(self._lines(), count))

    def cut(self, undone: Callable[[Record], bool] = lambda _: False) -> None:
        """Remove half a line at the end, and before it all records behind the last that is not `undone`."""
        kept = (end for end, line in self._backwards() if not undone(json.loads(line)))
        end = next(kept, 0)
        if self._path.exists():
            os.truncate(self._path, end)

    def _lines(self) -> Iterator[bytes]:
        return (line for _, line in self._backwards())

    def _backwards(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines, from the last one to the first, each with the position of its end in the file."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            end = position = file.seek(0, os.SEEK_END)
            rest, whole = b"", False
            while position:
                step = min(_BLOCK, position)
                position = file.seek(position - step)
                rest, *lines = (file.read(step) + rest).split(b"\n")
                if lines and not whole:
                    end -= len(lines.pop())  # what follows the last line's end
                    whole = True
                for line in reversed(lines):
                    yield end, line
                    end -= len(line) + 1
            if whole:
                yield end, rest


class FollowedRecords:
    """The records of a file that grows, each once, however often one looks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset, self._last = 0, b""  # the end of what was read, and its last line

    def new(self) -> tuple[bool, list[Record]]:
        """What was written since the last call.

        Returns:
            Whether the file was rewritten, so that all earlier records are void; and the new records.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            rewritten, self._offset, self._last = bool(self._offset), 0, b""
            return rewritten, []
        with file:
            file.seek(self._offset - len(self._last))
            rewritten = file.read(len(self._last)) != self._last
            if rewritten:
                self._offset = file.seek(0)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        if data:
            self._offset += len(data)
            self._last = data[data.rfind(b"\n", 0, -1) + 1 :]
        elif rewritten:
            self._last = b""
        return rewritten, [json.loads(line) for line in data.splitlines()]


def _parsed(backwards: Iterator[bytes]) -> list[Record]:
    return [json.loads(line) for line in backwards][::-1]


def _seq(line: bytes) -> int:
    """The number of a record, read without parsing the whole record."""
    found = _SEQ.match(line)
    return int(found[1]) if found is not None else int(json.loads(line)["seq"])

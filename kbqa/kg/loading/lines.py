"""Reads text files by line, gzipped or not; hashes them and reports progress while reading."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kbqa.errors import GraphLoadError

SAMPLE_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_BOM = b"\xef\xbb\xbf"

# Called with a file, the bytes read so far and the file's size; both count compressed bytes.
Progress = Callable[[Path, int, int], None]


@dataclass(frozen=True)
class Block:
    """Whole lines of a file.

    Attributes:
        first: number of the first line, from 1.
        max_bytes: a longer line is rejected.
    """

    text: bytes
    first: int
    max_bytes: int

    @cached_property
    def lines(self) -> list[bytes]:
        """Without line breaks."""
        return self.text.removesuffix(b"\n").split(b"\n")

    def decoded(self) -> list[str] | None:
        """All lines as text; None if a line is blank, contains a carriage return or must be rejected."""
        try:
            lines = self.text.removesuffix(b"\n").decode().split("\n")
        except UnicodeDecodeError:
            return None
        # A character has at most four bytes.
        is_short = max(map(len, lines)) <= self.max_bytes // 4
        return lines if is_short and all(lines) and b"\r" not in self.text else None

    def numbered(self, reject: Callable[[int, str], None]) -> Iterator[tuple[int, str]]:
        """(number, text) of each non-blank line; too long and non-UTF-8 lines go to `reject`."""
        for number, line in enumerate(self.lines, start=self.first):
            if len(line) > self.max_bytes:
                reject(number, f"the line is longer than {self.max_bytes} bytes")
                continue
            line = line.removesuffix(b"\r")
            if not line.strip(b" "):
                continue
            try:
                yield number, line.decode()
            except UnicodeDecodeError:
                reject(number, "the text is not UTF-8")


class LineSource(io.RawIOBase):
    """A file's bytes, decompressed and without byte order mark.

    Attributes:
        sample: the first bytes.
        digest: SHA-256 of the bytes read so far.

    Raises:
        GraphLoadError: while reading, if the file is damaged.
    """

    def __init__(self, path: Path, file: io.BufferedReader, progress: Progress | None = None) -> None:
        self.path = path
        self._file, self._progress = file, progress
        self._size = path.stat().st_size
        zipped = file.peek(2)[:2] == _GZIP_MAGIC
        self._stream: io.BufferedIOBase = gzip.GzipFile(fileobj=file) if zipped else file
        self.digest = hashlib.sha256()
        self.sample = self._read(SAMPLE_BYTES).removeprefix(_UTF8_BOM)
        self._ahead = self.sample

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._ahead[: len(buffer)] or self._read(len(buffer))
        self._ahead = self._ahead[len(chunk) :]
        self.digest.update(chunk)
        buffer[: len(chunk)] = chunk
        if self._progress is not None:
            self._progress(self.path, self._file.tell(), self._size)
        return len(chunk)

    def blocks(self, *, max_bytes: int = MAX_LINE_BYTES) -> Iterator[Block]:
        """All lines, some megabytes at a time; of one longer than `max_bytes`, only so much that it shows."""
        with io.BufferedReader(self, SAMPLE_BYTES) as reader:
            number = 1
            # Only \n ends a line: names may contain Unicode's other line breaks.
            while text := reader.read(_BLOCK_BYTES):
                rest = b"" if text.endswith(b"\n") else reader.readline(max_bytes + 1)
                yield (block := Block(text + rest, number, max_bytes))
                number += len(block.lines)
                while rest and not rest.endswith(b"\n"):
                    rest = reader.readline(max_bytes)

    def lines(
        self, reject: Callable[[int, str], None], *, max_bytes: int = MAX_LINE_BYTES
    ) -> Iterator[tuple[int, str]]:
        """(number from 1, text) of each non-blank line; too long and non-UTF-8 lines go to `reject`."""
        for block in self.blocks(max_bytes=max_bytes):
            yield from block.numbered(reject)

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise GraphLoadError(self.path, f"the file cannot be read: {error}") from error


@contextmanager
def open_source(path: Path, progress: Progress | None = None) -> Iterator[LineSource]:
    """Open a file.

    Raises:
        GraphLoadError: the file cannot be opened.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise GraphLoadError(path, f"the file cannot be read: {error.strerror}") from error
    with file:
        yield LineSource(path, file, progress)

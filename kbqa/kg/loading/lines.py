"""Reads text files by line, gzipped or not; hashes them and reports progress while reading."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbqa.errors import GraphLoadError

SAMPLE_BYTES = 1 << 16
MAX_LINE_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_BOM = b"\xef\xbb\xbf"

# Called with a file, the bytes read so far and the file's size; both count compressed bytes.
Progress = Callable[[Path, int, int], None]


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

    def lines(
        self, reject: Callable[[int, str], None], *, max_bytes: int = MAX_LINE_BYTES
    ) -> Iterator[tuple[int, str]]:
        """(number from 1, text) of each non-blank line; too long and non-UTF-8 lines go to `reject`."""
        with io.BufferedReader(self, SAMPLE_BYTES) as reader:
            number = 0
            # Only \n ends a line: names may contain Unicode's other line breaks.
            while line := reader.readline(max_bytes + 1):
                number += 1
                if len(line) > max_bytes:
                    reject(number, f"the line is longer than {max_bytes} bytes")
                    while line and not line.endswith(b"\n"):
                        line = reader.readline(max_bytes)
                    continue
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                if not line.strip(b" "):
                    continue
                try:
                    yield number, line.decode()
                except UnicodeDecodeError:
                    reject(number, "the text is not UTF-8")

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

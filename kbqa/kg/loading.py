"""Reading graph files: delimited triples, N-Triples and Turtle, each also gzipped.

The format is recognised from the content, never from the file's name. Delimited
files hold one triple a line, subject, relation, object, separated by tabs or by
`|`; the names are taken exactly as they stand. A file with one bad line is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, cast

import pyoxigraph as ox

from kbqa.errors import GraphLoadError
from kbqa.kg.oxigraph import named_quad

_GZIP_MAGIC = b"\x1f\x8b"
_UTF8_BOM = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 20

_N_TRIPLES_LINE = re.compile(r"\s*(<[^<>]*>|_:\S+)\s*<[^<>]*>\s*(<[^<>]*>|_:\S+|\".*)\s*\.\s*(#.*)?")
_TURTLE_DIRECTIVE = re.compile(r"\s*(@prefix\s|@base\s|prefix\s+\S*:\s*<|base\s+<)", re.IGNORECASE)
_TURTLE_STATEMENT = re.compile(r"\s*(<[^<>\s]*>|_:\S+|\[)(\s+(<[^<>\s]*>|a)\s|\s*$)")


class GraphFormat(StrEnum):
    """What a graph file is written in."""

    TAB = "tab"
    PIPE = "pipe"
    NTRIPLES = "ntriples"
    TURTLE = "turtle"

    @property
    def is_named(self) -> bool:
        """Whether its triples consist of names, not of RDF terms."""
        return self in (GraphFormat.TAB, GraphFormat.PIPE)


_RDF_FORMATS = {GraphFormat.NTRIPLES: ox.RdfFormat.N_TRIPLES, GraphFormat.TURTLE: ox.RdfFormat.TURTLE}


class GraphFile:
    """A graph file, open for one pass.

    Attributes:
        path: where it is.
        format: what it is written in.

    Raises:
        GraphLoadError: by every method, naming the line where there is one.
    """

    def __init__(self, path: Path, stream: io.BufferedIOBase, format: GraphFormat | None) -> None:
        self.path = path
        self._source = _Source(path, stream)
        sample = self._source.sample
        if not sample.strip():
            raise GraphLoadError(path, "the file is empty")
        self.format = format or recognise(path, sample)
        self._source.digest.update(f"{self.format}\n".encode())

    def quads(self) -> Iterator[ox.Quad]:
        """The triples in the file's order, duplicates and all."""
        with io.BufferedReader(self._source, 1 << 16) as reader:
            if self.format is GraphFormat.TAB:
                yield from _delimited(self.path, reader, "\t")
            elif self.format is GraphFormat.PIPE:
                yield from _delimited(self.path, reader, "|")
            else:
                yield from _rdf(self.path, cast(IO[bytes], reader), _RDF_FORMATS[self.format])

    def digest(self) -> str:
        """Short hash of format and content; to be asked for after the pass."""
        return self._source.digest.hexdigest()[:12]


@contextmanager
def open_graph_file(path: Path, format: GraphFormat | None = None) -> Iterator[GraphFile]:
    """Open a graph file, gzipped or not.

    Args:
        format: overrides what the content looks like.

    Raises:
        GraphLoadError: it cannot be opened, is empty, or is in no known format.
    """
    with _open(path) as raw:
        if raw.peek(2)[:2] == _GZIP_MAGIC:
            with gzip.open(raw) as unzipped:
                yield GraphFile(path, unzipped, format)
        else:
            yield GraphFile(path, raw, format)


def _open(path: Path) -> io.BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise GraphLoadError(path, f"the file cannot be read: {error.strerror}") from error


def recognise(path: Path, sample: bytes) -> GraphFormat:
    """The format of a file that begins with `sample`.

    Raises:
        GraphLoadError: it is none that can be read.
    """
    lines = sample.decode("utf-8", "replace").split("\n")
    if len(sample) >= _SAMPLE_BYTES and len(lines) > 1:
        lines.pop()
    lines = [line.rstrip("\r") for line in lines if line.strip()]
    statements = [line for line in lines if not line.lstrip().startswith("#")]
    if statements and any(map(_TURTLE_DIRECTIVE.match, lines)):
        return GraphFormat.TURTLE
    triples = sum(_N_TRIPLES_LINE.fullmatch(line) is not None for line in statements)
    continued = any(line.rstrip().endswith((";", ",")) for line in statements)
    # Half of the lines are enough: a bad line of N-Triples is best named by its own parser.
    if triples and 2 * triples >= len(statements) and not continued:
        return GraphFormat.NTRIPLES
    if statements and _TURTLE_STATEMENT.match(statements[0]):
        return GraphFormat.TURTLE
    tabs = sum(line.count("\t") == 2 for line in lines)
    pipes = sum(line.count("|") == 2 for line in lines)
    # A file whose sampled lines are all wrong still says which line is wrong.
    if tabs > pipes or (tabs == pipes and any("\t" in line for line in lines)):
        return GraphFormat.TAB
    if pipes or any("|" in line for line in lines):
        return GraphFormat.PIPE
    if "\ufffd" in "".join(lines):
        raise GraphLoadError(path, "the text is not UTF-8", 1)
    expected = "subject, relation, object separated by tabs or |, N-Triples, or Turtle"
    raise GraphLoadError(path, f"the format is not recognised: expected {expected}", 1)


class _Source(io.RawIOBase):
    """A stream without its byte order mark, which hashes what is read from it."""

    def __init__(self, path: Path, stream: io.BufferedIOBase) -> None:
        self._path, self._stream = path, stream
        self.digest = hashlib.sha256()
        self.sample = self._read(_SAMPLE_BYTES).removeprefix(_UTF8_BOM)
        self._ahead = self.sample

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._ahead[: len(buffer)] or self._read(len(buffer))
        self._ahead = self._ahead[len(chunk) :]
        self.digest.update(chunk)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise GraphLoadError(self._path, f"the file cannot be read: {error}") from error


def _delimited(path: Path, reader: io.BufferedIOBase, separator: str) -> Iterator[ox.Quad]:
    number = 0
    # Only \n ends a line: names may hold any other of Unicode's line breaks.
    while line := reader.readline(_MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > _MAX_LINE_BYTES:
            raise GraphLoadError(path, f"the line is longer than {_MAX_LINE_BYTES} bytes", number)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if not line.strip(b" "):
            continue
        try:
            fields = line.decode()
        except UnicodeDecodeError:
            raise GraphLoadError(path, "the text is not UTF-8", number) from None
        head, relation, tail = _fields(path, fields.split(separator), number)
        yield named_quad(head, relation, tail)


def _fields(path: Path, fields: list[str], number: int) -> list[str]:
    if len(fields) != 3:
        raise GraphLoadError(path, f"expected subject, relation, object: found {len(fields)} fields", number)
    for role, name in zip(("subject", "relation", "object"), fields, strict=True):
        if not name.strip():
            raise GraphLoadError(path, f"the {role} is empty", number)
    return fields


def _rdf(path: Path, reader: IO[bytes], format: ox.RdfFormat) -> Iterator[ox.Quad]:
    try:
        yield from ox.parse(reader, format=format)
    except SyntaxError as error:
        line = error.lineno
        # The parser misses the dot of N-Triples only at the beginning of the next line.
        if format == ox.RdfFormat.N_TRIPLES and line and error.msg.endswith("followed by a dot"):
            line -= 1
        raise GraphLoadError(path, error.msg.partition(": ")[2] or error.msg, line) from None

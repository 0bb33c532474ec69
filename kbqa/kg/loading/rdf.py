"""Reads RDF in any syntax, plain or gzipped.

A graph has no named graphs: the triples of all graphs in a file are read as triples of one graph. Blank nodes
of different files are different nodes, even if they have the same label.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import IO, cast
from xml.parsers import expat

import pyoxigraph as ox

from kbqa.errors import GraphLoadError
from kbqa.kg.loading.lines import SAMPLE_BYTES, LineSource

_BY_LINE = (ox.RdfFormat.N_TRIPLES, ox.RdfFormat.N_QUADS)
_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 24
_REMOTE_CONTEXT = "No LoadDocumentCallback"  # what the parser says of a context that is only a URL

Node = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


def read_rdf(
    source: LineSource, syntax: ox.RdfFormat, reject: Callable[[int, str], None]
) -> Iterator[ox.Quad]:
    """The triples of a file, in its order.

    Args:
        reject: receives the bad lines of N-Triples and N-Quads, where every line stands alone. In other
            syntaxes what follows an error may be read wrongly, so nothing is skipped there.

    Raises:
        GraphLoadError: the file does not follow the syntax; names the line.
    """
    quads = _by_line(source, syntax, reject) if syntax in _BY_LINE else _whole(source, syntax)
    for quad in quads:
        is_plain = isinstance(quad.graph_name, ox.DefaultGraph)
        yield quad if is_plain else ox.Quad(quad.subject, quad.predicate, quad.object)


def kept_apart(quads: Iterable[ox.Quad], file: int) -> Iterator[ox.Quad]:
    """The triples with blank nodes that no other file of the graph has: `_:b` of file 2 becomes `_:f2_b`."""
    for quad in quads:
        # A triple's subject and predicate are never literals, so only their names change.
        yield ox.Quad(_renamed(quad.subject, file), quad.predicate, _renamed(quad.object, file))  # type: ignore[arg-type]


def _renamed(node: Node, file: int) -> Node:
    if isinstance(node, ox.BlankNode):
        return ox.BlankNode(f"f{file}_{node.value}")
    if isinstance(node, ox.Triple):
        return ox.Triple(_renamed(node.subject, file), node.predicate, _renamed(node.object, file))  # type: ignore[arg-type]
    return node


def _by_line(
    source: LineSource, syntax: ox.RdfFormat, reject: Callable[[int, str], None]
) -> Iterator[ox.Quad]:
    with io.BufferedReader(source, SAMPLE_BYTES) as reader:
        number = 1
        while block := reader.read(_BLOCK_BYTES) + reader.readline(_MAX_LINE_BYTES):
            lines = block.count(b"\n")
            if len(block) > _MAX_LINE_BYTES and not block.endswith(b"\n"):
                reason = f"the line is longer than {_MAX_LINE_BYTES} bytes"
                raise GraphLoadError(source.path, reason, number + lines)
            try:
                yield from list(ox.parse(block, format=syntax))
            except SyntaxError:
                yield from _each_line(block, syntax, number, reject)
            number += lines


def _each_line(
    block: bytes, syntax: ox.RdfFormat, first: int, reject: Callable[[int, str], None]
) -> Iterator[ox.Quad]:
    """Parse a block that contains an error by line, so that no valid line is lost."""
    for number, line in enumerate(block.split(b"\n"), first):
        try:
            yield from list(ox.parse(line, format=syntax))
        except SyntaxError as error:
            reject(number, _reason(error))


def _whole(source: LineSource, syntax: ox.RdfFormat) -> Iterator[ox.Quad]:
    with io.BufferedReader(source, SAMPLE_BYTES) as buffered:
        reader = cast(IO[bytes], buffered)
        lines = _XmlLines(reader) if syntax == ox.RdfFormat.RDF_XML else None
        try:
            yield from ox.parse(reader if lines is None else cast(IO[bytes], lines), format=syntax)
        except SyntaxError as error:
            line = error.lineno if lines is None else lines.number
            raise GraphLoadError(source.path, _reason(error), line) from None
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise GraphLoadError(source.path, f"not XML: {reason}", error.lineno) from None


class _XmlLines:
    """An XML file, given out by line and checked to be well-formed.

    The RDF parser neither says in which line an error is, nor notices that a file ends too early.

    Attributes:
        number: of the last line that was given out, from 1.
    """

    def __init__(self, reader: IO[bytes]) -> None:
        self.number, self._ended = 0, True
        self._reader, self._checker = reader, expat.ParserCreate()

    def read(self, size: int) -> bytes:
        """At most one line.

        Raises:
            ExpatError: the file is not well-formed up to the end of the line.
        """
        line = self._reader.readline(size)
        if line:
            self.number, self._ended = self.number + self._ended, line.endswith(b"\n")
        self._checker.Parse(line, not line)
        return line


def _reason(error: SyntaxError) -> str:
    if _REMOTE_CONTEXT in error.msg:
        return "the context is a URL, and kbqa reads no files from elsewhere: write the context into the file"
    return error.msg.partition(": ")[2] or error.msg

"""Reads graphs: delimited triples, N-Triples, Turtle and RoG's records, optionally gzipped.

The format is detected from the content, never from a file's name. Delimited files hold one
fact per line, with fields separated by tabs or `|`: subject, relation, object, and for dated
facts also the time, or start and end. Names are taken exactly as written. All lines are read
before a bad one makes the load fail, so that a report can list every bad line.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, cast

import pyoxigraph as ox

from kbqa.errors import ConfigurationError, GraphLoadError
from kbqa.kg.embedded.oxigraph import named_quad
from kbqa.kg.loading.facts import Calendar, Fact, Label, time_of
from kbqa.kg.loading.labels import read_labels, read_names
from kbqa.kg.loading.lines import SAMPLE_BYTES, LineSource, Progress, open_source
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.loading.rog import read_records

_N_TRIPLES_LINE = re.compile(r"\s*(<[^<>]*>|_:\S+)\s*<[^<>]*>\s*(<[^<>]*>|_:\S+|\".*)\s*\.\s*(#.*)?")
_TURTLE_DIRECTIVE = re.compile(r"\s*(@prefix\s|@base\s|prefix\s+\S*:\s*<|base\s+<)", re.IGNORECASE)
_TURTLE_STATEMENT = re.compile(r"\s*(<[^<>\s]*>|_:\S+|\[)(\s+(<[^<>\s]*>|a)\s|\s*$)")
_JSON_RECORD = re.compile(r"\s*(\[\s*)?\{\s*\"")

_ROLES = ("subject", "relation", "object")
_BLOCK_BYTES = 1 << 20
_MAX_N_TRIPLE_BYTES = 1 << 24


class GraphFormat(StrEnum):
    """The format of a graph file."""

    TAB = "tab"
    PIPE = "pipe"
    NTRIPLES = "ntriples"
    TURTLE = "turtle"
    ROG = "rog"

    @property
    def is_named(self) -> bool:
        """Whether triples consist of names instead of RDF terms."""
        return self not in (GraphFormat.NTRIPLES, GraphFormat.TURTLE)


_SEPARATORS = {GraphFormat.TAB: "\t", GraphFormat.PIPE: "|"}


@dataclass(frozen=True)
class GraphSource:
    """The files of a graph, and how to read them.

    Attributes:
        files: only delimited graphs may have more than one.
        format: overrides the detected format.
        labels: file with names of ids, as lines `id TAB label [TAB alias …]`.
        entity_names, relation_names: files with the names of the ids in delimited files, as
            lines `name TAB id`.
        type_relations: ids of further relations that give an entity's type.
        calendar: converts the times in the files to dates, if they are numbers.
    """

    files: Sequence[Path]
    format: GraphFormat | None = None
    labels: Path | None = None
    entity_names: Path | None = None
    relation_names: Path | None = None
    type_relations: tuple[str, ...] = ()
    calendar: Calendar | None = None

    @contextmanager
    def open(
        self, rejected: RejectedLines | None = None, progress: Progress | None = None
    ) -> Iterator[GraphReader]:
        """Open the files for one pass.

        Raises:
            GraphLoadError: a file cannot be opened, is empty, or has an unknown format.
            ConfigurationError: the files or options conflict.
        """
        with ExitStack() as opened:
            sources = [opened.enter_context(open_source(path, progress)) for path in self.files]
            yield GraphReader(self, sources, rejected or RejectedLines(), progress)


class GraphReader:
    """One pass over a graph's files: the facts, then the labels.

    Attributes:
        format: of the first file.

    Raises:
        GraphLoadError: by every method; names the line if there is one.
    """

    def __init__(
        self,
        graph: GraphSource,
        sources: Sequence[LineSource],
        rejected: RejectedLines,
        progress: Progress | None,
    ) -> None:
        self._graph, self._sources, self._rejected, self._progress = graph, sources, rejected, progress
        for source in sources:
            if not source.sample.strip():
                raise GraphLoadError(source.path, "the file is empty")
        self._formats = [graph.format or recognise(source.path, source.sample) for source in sources]
        self.format = self._formats[0]
        self._digest = hashlib.sha256(
            f"{self._formats} {graph.calendar} {sorted(graph.type_relations)}\n".encode()
        )
        delimited = all(format in _SEPARATORS for format in self._formats)
        if len(sources) > 1 and not delimited:
            raise ConfigurationError("only tab- or |-separated graphs may consist of several files")
        if (graph.entity_names or graph.relation_names or graph.calendar) and not delimited:
            raise ConfigurationError(
                "--entities, --relations and --time-unit can only be used with tab- or |-separated files"
            )

    def facts(self) -> Iterator[Fact]:
        """The facts in file order, including duplicates."""
        entities, relations = self._names(self._graph.entity_names), self._names(self._graph.relation_names)
        for source, format in zip(self._sources, self._formats, strict=True):
            reject = partial(self._rejected.add, source.path)
            if format is GraphFormat.ROG:
                for record in read_records(source, reject):
                    yield from (Fact(named_quad(*triple)) for triple in record.triples)
            elif format is GraphFormat.NTRIPLES:
                yield from map(Fact, _n_triples(source, reject))
            elif format is GraphFormat.TURTLE:
                yield from map(Fact, _turtle(source))
            else:
                yield from _delimited(
                    source, _SEPARATORS[format], entities, relations, self._graph.calendar, reject
                )
            self._digest.update(source.digest.digest())
        self._rejected.settle()

    def labels(self) -> Iterator[Label]:
        """The names in the labels file, in order; empty if there is no such file."""
        if self._graph.labels is not None:
            with open_source(self._graph.labels, self._progress) as source:
                yield from read_labels(source, self._rejected)
                self._digest.update(b"labels" + source.digest.digest())
            self._rejected.settle()

    def digest(self) -> str:
        """Short hash of content and options; call it after the pass."""
        return self._digest.hexdigest()[:12]

    def _names(self, path: Path | None) -> Mapping[str, str] | None:
        if path is None:
            return None
        with open_source(path, self._progress) as source:
            names = read_names(source, self._rejected)
            self._digest.update(b"names" + source.digest.digest())
        return names


def recognise(path: Path, sample: bytes) -> GraphFormat:
    """Detect the format of a file that begins with `sample`.

    Raises:
        GraphLoadError: the format is not supported.
    """
    if _JSON_RECORD.match(sample.decode("utf-8", "replace")):
        return GraphFormat.ROG
    lines = sample.decode("utf-8", "replace").split("\n")
    if len(sample) >= SAMPLE_BYTES and len(lines) > 1:
        lines.pop()
    lines = [line.rstrip("\r") for line in lines if line.strip()]
    statements = [line for line in lines if not line.lstrip().startswith("#")]
    if statements and any(map(_TURTLE_DIRECTIVE.match, lines)):
        return GraphFormat.TURTLE
    triples = sum(_N_TRIPLES_LINE.fullmatch(line) is not None for line in statements)
    continued = any(line.rstrip().endswith((";", ",")) for line in statements)
    # Half of the lines are enough: the N-Triples parser reports the bad ones best.
    if triples and 2 * triples >= len(statements) and not continued:
        return GraphFormat.NTRIPLES
    if statements and _TURTLE_STATEMENT.match(statements[0]):
        return GraphFormat.TURTLE
    tabs = sum(2 <= line.count("\t") <= 4 for line in lines)
    pipes = sum(2 <= line.count("|") <= 4 for line in lines)
    # If all sampled lines are wrong, a format is still chosen, so that the error can name a line.
    if tabs > pipes or (tabs == pipes and any("\t" in line for line in lines)):
        return GraphFormat.TAB
    if pipes or any("|" in line for line in lines):
        return GraphFormat.PIPE
    if "\ufffd" in "".join(lines):
        raise GraphLoadError(path, "the text is not UTF-8", 1)
    expected = "subject, relation, object separated by tabs or |, N-Triples, Turtle, or JSON records"
    raise GraphLoadError(path, f"the format is not recognised: expected {expected}", 1)


def _is_dated(sample: bytes, separator: str) -> bool:
    """Whether the facts of a file are dated: most of its first lines have a fourth field."""
    counts = [line.count(separator.encode()) for line in sample.split(b"\n")[: 1 << 10]]
    return sum(count in (3, 4) for count in counts) > counts.count(2)


def _delimited(
    source: LineSource,
    separator: str,
    entities: Mapping[str, str] | None,
    relations: Mapping[str, str] | None,
    calendar: Calendar | None,
    reject: Callable[[int, str], None],
) -> Iterator[Fact]:
    expected, most = "subject, relation, object", 3
    if calendar is not None or _is_dated(source.sample, separator):
        expected, most = f"{expected}, time, or start and end", 5
    for number, line in source.lines(reject):
        fields = line.split(separator)
        try:
            if not 3 <= len(fields) <= most:
                raise ValueError(f"expected {expected}: found {len(fields)} fields")
            head, relation, tail, *times = fields
            for role, name in zip(_ROLES, fields, strict=False):
                if not name or name.isspace():
                    raise ValueError(f"the {role} is empty")
            if entities is not None:
                head, tail = _name(entities, head, "subject"), _name(entities, tail, "object")
            if relations is not None:
                relation = _name(relations, relation, "relation")
            time = time_of(times[0], times[1] if len(times) > 1 else None, calendar) if times else ""
        except ValueError as error:
            reject(number, str(error))
            continue
        yield Fact(named_quad(head, relation, tail), time)


def _name(names: Mapping[str, str], id_: str, role: str) -> str:
    try:
        return names[id_]
    except KeyError:
        raise ValueError(f'the {role} "{id_[:80]}" is missing from the file of names') from None


def _n_triples(source: LineSource, reject: Callable[[int, str], None]) -> Iterator[ox.Quad]:
    with io.BufferedReader(source, SAMPLE_BYTES) as reader:
        number = 1
        while block := reader.read(_BLOCK_BYTES) + reader.readline(_MAX_N_TRIPLE_BYTES):
            lines = block.count(b"\n")
            if len(block) > _MAX_N_TRIPLE_BYTES and not block.endswith(b"\n"):
                reason = f"the line is longer than {_MAX_N_TRIPLE_BYTES} bytes"
                raise GraphLoadError(source.path, reason, number + lines)
            try:
                yield from list(ox.parse(block, format=ox.RdfFormat.N_TRIPLES))
            except SyntaxError:
                yield from _line_by_line(block, number, reject)
            number += lines


def _line_by_line(block: bytes, first: int, reject: Callable[[int, str], None]) -> Iterator[ox.Quad]:
    """Parse a block that contains an error by line, so that no valid line is lost."""
    for number, line in enumerate(block.split(b"\n"), first):
        try:
            yield from list(ox.parse(line, format=ox.RdfFormat.N_TRIPLES))
        except SyntaxError as error:
            reject(number, _reason(error))


def _turtle(source: LineSource) -> Iterator[ox.Quad]:
    try:
        with io.BufferedReader(source, SAMPLE_BYTES) as reader:
            yield from ox.parse(cast(IO[bytes], reader), format=ox.RdfFormat.TURTLE)
    except SyntaxError as error:
        # What follows an error in Turtle may be read wrongly, so nothing is skipped.
        raise GraphLoadError(source.path, _reason(error), error.lineno) from None


def _reason(error: SyntaxError) -> str:
    return error.msg.partition(": ")[2] or error.msg

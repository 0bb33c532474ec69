"""Reads graphs: delimited triples, RDF in any syntax and RoG's records, optionally gzipped.

The format is detected from the content, never from a file's name. Delimited files hold one
fact per line, with fields separated by tabs or `|`: subject, relation, object, and for dated
facts also the time, or start and end. Names are taken exactly as written. All lines are read
before a bad one makes the load fail, so that a report can list every bad line. Several files,
all delimited or all RDF, make one graph.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import repeat
from pathlib import Path

import pyoxigraph as ox

from kbqa.errors import ConfigurationError, GraphLoadError
from kbqa.kg.loading.facts import Calendar, Fact, Label, NamedTriples, each_fact, named_quad, time_of
from kbqa.kg.loading.labels import read_labels, read_names
from kbqa.kg.loading.lines import SAMPLE_BYTES, Block, LineSource, Progress, open_source
from kbqa.kg.loading.rdf import kept_apart, read_rdf
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.loading.rog import read_records

_IRI, _NODE = "<[^<>]*>", r"(?:<[^<>]*>|_:\S+)"
_OBJECT = rf"(?:{_NODE}|\"(?:[^\"\\]|\\.)*+\"(?:@[\w-]+|\^\^{_IRI})?)"
_N_TRIPLES_LINE = re.compile(rf"\s*{_NODE}\s*{_IRI}\s*{_OBJECT}\s*\.\s*(#.*)?")
_N_QUADS_LINE = re.compile(rf"\s*{_NODE}\s*{_IRI}\s*{_OBJECT}\s*{_NODE}\s*\.\s*(#.*)?")
_TURTLE_DIRECTIVE = re.compile(r"\s*(@prefix\s|@base\s|prefix\s+\S*:\s*<|base\s+<)", re.IGNORECASE)
_TURTLE_STATEMENT = re.compile(r"\s*(<[^<>\s]*>|_:\S+|\[)(\s+(<[^<>\s]*>|a)\s|\s*$)")
# With prefixes, and without: names of delimited files may look like the first.
_TRIG_BLOCK = re.compile(r"\s*(graph\s)?\s*(<[^<>\s]*>|[\w.-]*:[\w.-]*|\[\s*\])?\s*\{", re.IGNORECASE)
_TRIG_BLOCK_OF_IRI = re.compile(r"\s*(graph\s)?\s*(<[^<>\s]*>|_:\S+)\s*\{", re.IGNORECASE)
_XML = re.compile(r"\s*<(\?xml|!DOCTYPE|!--|(\w+:)?RDF[\s>])")
_JSON_RECORD = re.compile(r"\s*(\[\s*)?\{\s*\"")
_JSON_LD_KEY = re.compile(r"\"@(context|graph|id|type)\"\s*:")
_HDT_MAGIC = b"$HDT"

_ROLES = ("subject", "relation", "object")


class GraphFormat(StrEnum):
    """The format of a graph file."""

    TAB = "tab"
    PIPE = "pipe"
    NTRIPLES = "ntriples"
    NQUADS = "nquads"
    TURTLE = "turtle"
    TRIG = "trig"
    RDFXML = "rdfxml"
    JSONLD = "jsonld"
    ROG = "rog"

    @property
    def is_named(self) -> bool:
        """Whether triples consist of names instead of RDF terms."""
        return self not in _SYNTAXES


_SEPARATORS = {GraphFormat.TAB: "\t", GraphFormat.PIPE: "|"}
# N-Quads and TriG extend N-Triples and Turtle; the first named graph may come after the sample.
_SYNTAXES = {
    GraphFormat.NTRIPLES: ox.RdfFormat.N_QUADS,
    GraphFormat.NQUADS: ox.RdfFormat.N_QUADS,
    GraphFormat.TURTLE: ox.RdfFormat.TRIG,
    GraphFormat.TRIG: ox.RdfFormat.TRIG,
    GraphFormat.RDFXML: ox.RdfFormat.RDF_XML,
    GraphFormat.JSONLD: ox.RdfFormat.JSON_LD,
}
# Files of a directory that belong to its graph; HDT files, so that they are refused rather than left out.
_RDF_SUFFIXES = (
    *(".nt", ".ntriples", ".nq", ".nquads", ".ttl", ".turtle", ".trig"),
    *(".rdf", ".rdfs", ".owl", ".jsonld", ".hdt"),
)


@dataclass(frozen=True)
class GraphSource:
    """The files of a graph, and how to read them.

    Attributes:
        files: all delimited, all RDF, or one file of records. A directory stands for the RDF files in it and
            in its subdirectories, by name.
        format: overrides the detected format.
        labels: file with names of ids, as lines `id TAB label [TAB alias …]`.
        entity_names, relation_names: files with the names of the ids in delimited files, as
            lines `name TAB id`.
        type_relations: ids of further relations that give an entity's type.
        calendar: converts the times in the files to dates, if they are numbers.
        underscored: whether underscores in the names of delimited files stand for blanks, as in ICEWS.
    """

    files: Sequence[Path]
    format: GraphFormat | None = None
    labels: Path | None = None
    entity_names: Path | None = None
    relation_names: Path | None = None
    type_relations: tuple[str, ...] = ()
    calendar: Calendar | None = None
    underscored: bool = False

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
            paths = [file for path in self.files for file in graph_files(path)]
            sources = [opened.enter_context(open_source(path, progress)) for path in paths]
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
        if graph.underscored:
            self._digest.update(b"underscored")
        delimited = all(format in _SEPARATORS for format in self._formats)
        if len(sources) > 1 and not delimited:
            self._require_rdf()
        only_delimited = graph.entity_names or graph.relation_names or graph.calendar or graph.underscored
        if only_delimited and not delimited:
            raise ConfigurationError(
                "--entities, --relations, --time-unit and --underscores-as-blanks can only be used with "
                "tab- or |-separated files"
            )

    def facts(self) -> Iterator[Fact]:
        """The facts in file order, including duplicates."""
        return each_fact(self.pieces())

    def pieces(self) -> Iterator[Fact | NamedTriples]:
        """The facts in file order, including duplicates; in columns where all lines of a block allow it."""
        entities, relations = self._names(self._graph.entity_names), self._names(self._graph.relation_names)
        for number, (source, format) in enumerate(zip(self._sources, self._formats, strict=True), start=1):
            reject = partial(self._rejected.add, source.path)
            if format is GraphFormat.ROG:
                for record in read_records(source, reject):
                    yield from (Fact(named_quad(*triple)) for triple in record.triples)
            elif format in _SYNTAXES:
                quads = read_rdf(source, _SYNTAXES[format], reject)
                yield from map(Fact, kept_apart(quads, number) if len(self._sources) > 1 else quads)
            else:
                names = entities, relations
                yield from _delimited(source, _SEPARATORS[format], names, self._graph, reject)
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

    def _require_rdf(self) -> None:
        for source, format in zip(self._sources, self._formats, strict=True):
            if format not in _SYNTAXES:
                first = f"{self._sources[0].path} is {self.format}, {source.path} is {format}"
                raise ConfigurationError(
                    f"{first}: the files of one graph must all be RDF, or all be tab- or |-separated"
                )

    def _names(self, path: Path | None) -> Mapping[str, str] | None:
        if path is None:
            return None
        with open_source(path, self._progress) as source:
            names = read_names(source, self._rejected)
            self._digest.update(b"names" + source.digest.digest())
        return names


def graph_files(path: Path) -> list[Path]:
    """A graph's file itself, or the RDF files under a directory, by name.

    Raises:
        GraphLoadError: there are none.
    """
    if not path.is_dir():
        return [path]
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and _is_rdf_name(file.name)]
    if not files:
        raise GraphLoadError(
            path, f"the directory holds no RDF files ({', '.join(_RDF_SUFFIXES)}; gzipped or not)"
        )
    return files


def _is_rdf_name(name: str) -> bool:
    return not name.startswith(".") and name.lower().removesuffix(".gz").endswith(_RDF_SUFFIXES)


def recognise(path: Path, sample: bytes) -> GraphFormat:
    """Detect the format of a file that begins with `sample`.

    Raises:
        GraphLoadError: the format is not supported.
    """
    if sample.startswith(_HDT_MAGIC):
        raise GraphLoadError(
            path, "HDT is not supported: convert it to N-Triples with hdt2rdf (hdt-cpp, hdt-java)"
        )
    text = sample.decode("utf-8", "replace")
    if _JSON_RECORD.match(text):
        return GraphFormat.JSONLD if _JSON_LD_KEY.search(text) else GraphFormat.ROG
    if _XML.match(text):
        return GraphFormat.RDFXML
    lines = text.split("\n")
    if len(sample) >= SAMPLE_BYTES and len(lines) > 1:
        lines.pop()
    lines = [line.rstrip("\r") for line in lines if line.strip()]
    if (syntax := _recognise_rdf(lines)) is not None:
        return syntax
    tabs = sum(2 <= line.count("\t") <= 4 for line in lines)
    pipes = sum(2 <= line.count("|") <= 4 for line in lines)
    # If all sampled lines are wrong, a format is still chosen, so that the error can name a line.
    if tabs > pipes or (tabs == pipes and any("\t" in line for line in lines)):
        return GraphFormat.TAB
    if pipes or any("|" in line for line in lines):
        return GraphFormat.PIPE
    if "\ufffd" in "".join(lines):
        raise GraphLoadError(path, "the text is not UTF-8", 1)
    expected = (
        "subject, relation, object separated by tabs or |, RDF (N-Triples, N-Quads, Turtle, TriG, RDF/XML, "
        "JSON-LD), or JSON records"
    )
    raise GraphLoadError(path, f"the format is not recognised: expected {expected}", 1)


def _recognise_rdf(lines: Sequence[str]) -> GraphFormat | None:
    """The syntax of non-blank lines among those that extend N-Triples; None if it is none of them."""
    statements = [line for line in lines if not line.lstrip().startswith("#")]
    if statements and any(map(_TURTLE_DIRECTIVE.match, lines)):
        return GraphFormat.TRIG if any(map(_TRIG_BLOCK.match, statements)) else GraphFormat.TURTLE
    if any(map(_TRIG_BLOCK_OF_IRI.match, statements)):
        return GraphFormat.TRIG
    quads = [_N_QUADS_LINE.fullmatch(line) is not None for line in statements]
    num_lines = sum(
        quad or _N_TRIPLES_LINE.fullmatch(line) is not None
        for quad, line in zip(quads, statements, strict=True)
    )
    continued = any(line.rstrip().endswith((";", ",")) for line in statements)
    # Half of the lines are enough: the parser reports the bad ones best.
    if num_lines and 2 * num_lines >= len(statements) and not continued:
        return GraphFormat.NQUADS if any(quads) else GraphFormat.NTRIPLES
    if statements and _TURTLE_STATEMENT.match(statements[0]):
        return GraphFormat.TURTLE
    return None


def _is_dated(sample: bytes, separator: str) -> bool:
    """Whether the facts of a file are dated: most of its first lines have a fourth field."""
    counts = [line.count(separator.encode()) for line in sample.split(b"\n")[: 1 << 10]]
    return sum(count in (3, 4) for count in counts) > counts.count(2)


def _delimited(
    source: LineSource,
    separator: str,
    names: tuple[Mapping[str, str] | None, Mapping[str, str] | None],
    graph: GraphSource,
    reject: Callable[[int, str], None],
) -> Iterator[Fact | NamedTriples]:
    is_dated = graph.calendar is not None or _is_dated(source.sample, separator)
    for block in source.blocks():
        triples = None if is_dated else _columns(block, separator, names, graph)
        if triples is not None:
            yield triples
        else:
            yield from _each(block.numbered(reject), separator, names, graph, is_dated, reject)


def _columns(
    block: Block,
    separator: str,
    names: tuple[Mapping[str, str] | None, Mapping[str, str] | None],
    graph: GraphSource,
) -> NamedTriples | None:
    """The triples of a block, all at once; None if a line must be rejected."""
    lines = block.decoded()
    if lines is None or set(map(str.count, lines, repeat(separator))) != {2}:
        return None
    fields = separator.join(lines).split(separator)
    if not all(fields) or any(map(str.isspace, fields)):
        return None
    heads, relations, tails = fields[0::3], fields[1::3], fields[2::3]
    try:
        if names[0] is not None:
            heads, tails = ([names[0][id_] for id_ in column] for column in (heads, tails))
        if names[1] is not None:
            relations = [names[1][id_] for id_ in relations]
    except KeyError:
        return None
    if graph.underscored:
        heads, relations, tails = (
            [name.replace("_", " ") for name in column] for column in (heads, relations, tails)
        )
    return NamedTriples(heads, relations, tails)


def _each(
    lines: Iterable[tuple[int, str]],
    separator: str,
    names: tuple[Mapping[str, str] | None, Mapping[str, str] | None],
    graph: GraphSource,
    is_dated: bool,
    reject: Callable[[int, str], None],
) -> Iterator[Fact]:
    """The facts of numbered lines, one by one."""
    entities, relations = names
    expected, most = "subject, relation, object", 3
    if is_dated:
        expected, most = f"{expected}, time, or start and end", 5
    for number, line in lines:
        fields = line.split(separator)
        try:
            if not 3 <= len(fields) <= most:
                found = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
                raise ValueError(f"expected {expected}: found {found}")
            head, relation, tail, *times = fields
            for role, name in zip(_ROLES, fields, strict=False):
                if not name or name.isspace():
                    raise ValueError(f"the {role} is empty")
            if entities is not None:
                head, tail = _name(entities, head, "subject"), _name(entities, tail, "object")
            if relations is not None:
                relation = _name(relations, relation, "relation")
            if graph.underscored:
                head, relation, tail = (name.replace("_", " ") for name in (head, relation, tail))
            time = time_of(times[0], times[1] if len(times) > 1 else None, graph.calendar) if times else ""
        except ValueError as error:
            reject(number, str(error))
            continue
        yield Fact(named_quad(head, relation, tail), time)


def _name(names: Mapping[str, str], id_: str, role: str) -> str:
    try:
        return names[id_]
    except KeyError:
        raise ValueError(f'the {role} "{id_[:80]}" is missing from the file of names') from None

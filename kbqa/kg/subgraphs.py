"""Per-question subgraphs, which restrict the look-ups of one question, as in KG-R1 and RoG.

A subgraph contains the triples that a breadth-first search from the question's entities
reaches within some hops (KG-R1, appendix B). Only the nodes less than `hops` away are stored;
the subgraph consists of all triples that contain one of them. Subgraphs that are given as
triples (RoG) are stored as positions of edges. In both cases, thousands of questions take
some megabytes, and a request unpacks only the subgraph that it names.

    subgraphs/NNNN/samples.*     ids of the questions: a string table
    subgraphs/NNNN/bounds.npy    question → its first row, and the end of its rows
    subgraphs/NNNN/rows.u32      nodes, or edges of the index's `out`; ascending within a question
    subgraphs/NNNN/set.json      `SubgraphSet`

If two sets have a subgraph for the same question, the later set is used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from cachetools import LRUCache

from kbqa.errors import GraphUnavailableError, QueryRefusedError
from kbqa.kg.actions import Item, Mention
from kbqa.kg.embedded.adjacency import Adjacency
from kbqa.kg.embedded.sides import Columns, MemorySide
from kbqa.kg.embedded.tables import StringTable, map_numbers, write_numbers
from kbqa.kg.embedded.walks import Numbers
from kbqa.kg.linking.linker import EntityLinker
from kbqa.kg.sparql.guard import QueryResult, ResultFormat
from kbqa.kg.store import GraphStore

# Unpacked subgraphs that are kept for the next request: their triples together, 24 bytes each.
_MAX_KEPT_TRIPLES = 4_000_000


class Seed(StrEnum):
    """The start of the search for a question's subgraph."""

    TOPICS = "topics"
    TOPICS_AND_GOLD = "topics+gold"
    """As in KG-R1; leaks, since the subgraph always contains the answers."""
    GIVEN = "given"
    """No search: the triples came with the question."""


class _Kind(StrEnum):
    NODES = "nodes"
    EDGES = "edges"


@dataclass(frozen=True, slots=True)
class SubgraphSet:
    """Metadata of the subgraphs of one data set.

    Attributes:
        source: the data set or file.
        hops: radius of the search; 0 for given triples.
        questions: number of questions with a subgraph.
    """

    source: str
    seed: Seed
    hops: int
    questions: int
    kind: str

    @property
    def leaking(self) -> bool:
        """Whether gold answers shaped the subgraphs; results then do not carry over to unseen questions."""
        return self.seed is Seed.TOPICS_AND_GOLD


class SubgraphWriter:
    """Writes the subgraphs of one set over an index; rows are written to disk immediately.

    Args:
        index: the whole graph.
        directory: empty directory for the set.
    """

    def __init__(self, index: Adjacency, directory: Path, *, source: str, seed: Seed, hops: int = 0) -> None:
        self._index, self._directory = index, directory
        self._source, self._seed, self._hops = source, seed, hops
        self._samples: list[str] = []
        self._bounds = array("Q")
        self._length = 0
        self._searched: dict[bytes, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        self._rows = (self._directory / "rows.u32").open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rows.close()

    def add_search(self, sample: str, seeds: Iterable[str]) -> None:
        """Add the subgraph within `hops` of the entities with the ids `seeds`."""
        nodes = self._index.numbers(seeds)
        key = nodes.tobytes()
        # Many questions have the same seeds, which are searched once.
        if key not in self._searched:
            self._searched[key] = self._append(self._search(nodes))
        self._add(sample, self._searched[key])

    def add_triples(self, sample: str, triples: Iterable[tuple[str, str, str]]) -> None:
        """Add a subgraph of triples, given by ids; triples that are not in the graph are skipped."""
        edges = (self._index.edge(*triple) for triple in triples)
        rows = np.unique(np.fromiter((edge for edge in edges if edge is not None), np.int64))
        self._add(sample, self._append(rows))

    def finish(self) -> SubgraphSet:
        """Write all files except the rows."""
        StringTable.write(self._directory, "samples", self._samples)
        write_numbers(self._directory / "bounds.npy", np.array(self._bounds, np.uint64))
        kind = _Kind.EDGES if self._seed is Seed.GIVEN else _Kind.NODES
        info = SubgraphSet(self._source, self._seed, self._hops, len(self._samples), kind)
        (self._directory / "set.json").write_text(json.dumps(asdict(info), indent=2) + "\n")
        return info

    def _search(self, nodes: Numbers) -> Numbers:
        frontier = nodes
        for _ in range(self._hops - 1):
            met = np.concatenate([side.columns(frontier)[2] for side in self._index.sides])
            frontier = np.setdiff1d(met, nodes)
            nodes = np.union1d(nodes, frontier)
        return nodes

    def _append(self, rows: Numbers) -> tuple[int, int]:
        if rows.size and int(rows[-1]) >= 2**32:
            raise GraphUnavailableError("per-question subgraphs are for graphs of fewer than 2^32 triples")
        rows.astype("<u4").tofile(self._rows)
        start, self._length = self._length, self._length + len(rows)
        return start, self._length

    def _add(self, sample: str, bounds: tuple[int, int]) -> None:
        self._samples.append(sample)
        self._bounds.extend(bounds)


class _StoredSet:
    def __init__(self, directory: Path) -> None:
        self.info = read_set(directory)
        self._samples = StringTable(directory, "samples")
        self._bounds = map_numbers(directory / "bounds.npy")
        rows = directory / "rows.u32"
        # An empty file cannot be mapped.
        self._rows: Numbers = np.memmap(rows, "<u4", mode="r") if rows.stat().st_size else np.zeros(0, "<u4")

    def rows(self, sample: str) -> Numbers | None:
        places = self._samples.find(sample)
        if not places:
            return None
        start, end = self._bounds[2 * places[-1]], self._bounds[2 * places[-1] + 1]
        return np.asarray(self._rows[start:end], np.int64)

    def samples(self) -> Iterator[str]:
        return (self._samples[place] for place in range(len(self._samples)))


def read_set(directory: Path) -> SubgraphSet:
    """Read the metadata of a set."""
    fields = json.loads((directory / "set.json").read_text())
    return SubgraphSet(**fields | {"seed": Seed(fields["seed"])})


def list_sets(directory: Path) -> list[SubgraphSet]:
    """The sets of a version, oldest first."""
    return [read_set(entry) for entry in sorted(directory.iterdir())] if directory.is_dir() else []


def write_set(directory: Path, write: Callable[[Path], SubgraphSet]) -> SubgraphSet:
    """Add a set to a version, and drop older sets if the new one has all of their questions.

    Args:
        directory: of all sets; created if missing.
        write: writes the new set into an empty directory.
    """
    directory.mkdir(exist_ok=True)
    earlier = sorted(directory.iterdir())
    added = directory / f"{int(earlier[-1].name) + 1 if earlier else 1:04}"
    added.mkdir()
    info = write(added)
    newer = StringTable(added, "samples")
    for entry in earlier:
        if all(newer.find(sample) for sample in _StoredSet(entry).samples()):
            shutil.rmtree(entry)
    return info


def set_digests(directory: Path) -> list[str]:
    """A hash of each set, in order."""
    digests = []
    for entry in sorted(directory.iterdir()):
        digest = hashlib.sha256()
        for path in sorted(entry.iterdir()):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        digests.append(digest.hexdigest())
    return digests


class Subgraphs:
    """The subgraphs of one version of a graph; safe for many threads.

    Args:
        directory: of the sets; there need not be one.
    """

    def __init__(self, directory: Path) -> None:
        entries = sorted(directory.iterdir(), reverse=True) if directory.is_dir() else []
        self._sets = [_StoredSet(entry) for entry in entries]
        # Not the subgraphs themselves: they hold the graph, which holds this.
        self._kept: LRUCache[str, tuple[MemorySide, MemorySide, SubgraphSet]] = LRUCache(
            _MAX_KEPT_TRIPLES,
            # The largest one must fit, too, then alone.
            getsizeof=lambda kept: min(len(kept[0]), _MAX_KEPT_TRIPLES),
        )
        self._lock = threading.Lock()

    def get(self, sample: str, index: Adjacency, store: GraphStore) -> Subgraph | None:
        """The subgraph of a question; None if there is none.

        Args:
            index, store: the graph that it is part of; the same thing, seen from two sides.
        """
        if not self._sets:
            return None
        with self._lock:
            kept = self._kept.get(sample)
        if kept is None:
            kept = self._unpack(sample, index)
            if kept is None:
                return None
        return Subgraph(index, store, sample, *kept)

    def _unpack(self, sample: str, index: Adjacency) -> tuple[MemorySide, MemorySide, SubgraphSet] | None:
        for stored in self._sets:
            rows = stored.rows(sample)
            if rows is not None:
                break
        else:
            return None
        outward, inward = index.sides
        heads, links, tails = (
            outward.columns_at(rows) if stored.info.kind == _Kind.EDGES else _triples_around(rows, index)
        )
        unpacked = (
            MemorySide((heads, links, tails), outward),
            MemorySide((tails, links, heads), inward),
            stored.info,
        )
        with self._lock:
            self._kept[sample] = unpacked
        return unpacked


def _triples_around(nodes: Numbers, index: Adjacency) -> Columns:
    """(heads, relations, tails) of all distinct triples that contain one of `nodes`."""
    outward, inward = index.sides
    heads, links, tails = outward.columns(nodes)
    their_tails, their_links, their_heads = inward.columns(nodes)
    new = ~np.isin(their_heads, nodes)
    return (
        np.concatenate([heads, their_heads[new]]),
        np.concatenate([links, their_links[new]]),
        np.concatenate([tails, their_tails[new]]),
    )


class Subgraph(Adjacency):
    """A `GraphStore` with a subset of another store's triples, and only their nodes and relations.

    Look-ups are as fast as in the whole graph. SPARQL cannot be restricted and is refused.
    """

    def __init__(
        self,
        index: Adjacency,
        store: GraphStore,
        sample: str,
        outward: MemorySide,
        inward: MemorySide,
        info: SubgraphSet,
    ) -> None:
        self._nodes, self._relation_terms = index._nodes, index._relation_terms
        self._relations, self._types, self._times = index._relations, index._types, index._times
        self.rules = index.rules
        self.sides, self._out, self._in = index.sides, outward, inward
        self._store, self._sample, self.info = store, sample, info
        self._outward, self._inward = outward, inward

    @property
    def version(self) -> str:
        return f"{self._store.version}/{self._sample}"

    @property
    def triples(self) -> int:
        return len(self._outward)

    @property
    def entities(self) -> int:
        return sum(not self._store.entity_term(item.id).startswith('"') for item in self._members)

    def edges(self) -> Iterator[int]:
        """The positions of its triples among all triples of the graph."""
        whole = self.sides[0]
        columns = self._outward.columns(self._outward.nodes())
        for triple in zip(*(column.tolist() for column in columns), strict=True):
            if (edge := whole.edge(*triple)) is not None:
                yield edge

    def nodes(self) -> Iterator[tuple[str, Item]]:
        return ((label, item) for label, item in super().nodes() if self._has(item.id))

    def resolve_entity(self, name: str) -> tuple[str, ...]:
        if self._has(name):
            return (name,)
        return tuple(id_ for id_ in self._nodes.labelled_by(name) if self._has(id_))

    def resolve_relation(self, name: str) -> tuple[str, ...]:
        if self._has_relation(name):
            return (name,)
        return tuple(id_ for id_ in self._relation_terms.labelled_by(name) if self._has_relation(id_))

    def item(self, id_: str) -> Item | None:
        return super().item(id_) if self._has(id_) or self._has_relation(id_) else None

    def relations(self) -> Sequence[Item]:
        return [self._relations[number] for number in sorted(self._links)]

    def types(self) -> Sequence[Item]:
        return [item for item in super().types() if self._has(item.id)]

    def subgraph(self, graph: str) -> GraphStore | None:
        return None

    def entity_term(self, id_: str) -> str:
        return self._store.entity_term(id_)

    def relation_term(self, id_: str) -> str:
        return self._store.relation_term(id_)

    def id_of(self, term: Mapping[str, str]) -> str:
        return self._store.id_of(term)

    def link(self, question: str) -> list[Mention]:
        return [mention for mention in self._store.link(question) if self._has(mention.id)]

    def complete(self, text: str, *, limit: int) -> list[Item]:
        return self._linker.complete(text, limit)

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        raise QueryRefusedError(
            "SPARQL queries cannot be restricted to a per-question subgraph: "
            'send this one without "graph", or use one-hop actions'
        )

    @cached_property
    def _linker(self) -> EntityLinker:
        return EntityLinker((item.label, item) for item in self._members if not item.id.startswith('"'))

    @cached_property
    def _members(self) -> list[Item]:
        numbers = np.union1d(self._outward.nodes(), self._inward.nodes())
        return [self._nodes.item(number) for number in numbers.tolist()]

    @cached_property
    def _links(self) -> frozenset[int]:
        return frozenset(self._outward.relations().tolist())

    def _has(self, id_: str) -> bool:
        number = self._nodes.number(id_)
        if number is None:
            return False
        return len(self._out.all_neighbours(number)) > 0 or len(self._in.all_neighbours(number)) > 0

    def _has_relation(self, id_: str) -> bool:
        return self._relation_terms.number(id_) in self._links

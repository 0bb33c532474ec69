"""Versions of graphs on disk: what is in a version's directory, and how it is filled.

manifest.json   what is known without opening anything
store/          Oxigraph, for SPARQL
index/          for one-hop look-ups
subgraphs/      of single questions, if there are any
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from kbqa.errors import GraphLoadError, QueryError
from kbqa.kg.embedded.oxigraph import SUBGRAPHS, OxigraphStore, write_graph
from kbqa.kg.endpoint.record import Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore, find_server
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.lines import Progress, open_source
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.loading.rog import read_records
from kbqa.kg.store import GraphInfo
from kbqa.kg.subgraphs import Seed, SubgraphSet, SubgraphWriter, list_sets, set_digests, write_set

# Part of a version's hash: raise it when the layout on disk or the mapping of names changes.
LAYOUT = 2


@dataclass(frozen=True, slots=True)
class GraphManifest:
    """What is known of a version without opening it.

    Attributes:
        content: hash of the triples alone; versions that differ in their subgraphs share it.
        source: names of the files that it was loaded from.
        skipped_lines: lines of them that could not be read.
        endpoint: where the graph is, if it is attached and not loaded; it has no format then.
    """

    name: str
    version: str
    content: str
    format: GraphFormat | None
    triples: int | None
    entities: int | None
    source: str
    loaded_at: str
    skipped_lines: int = 0
    layout: int = LAYOUT
    endpoint: Endpoint | None = None

    def info(self) -> GraphInfo:
        return GraphInfo(self.name, self.version, self.triples, self.entities)


def write_version(
    directory: Path, name: str, source: GraphSource, rejected: RejectedLines, progress: Progress | None
) -> GraphManifest:
    """Fill a directory with a version of a graph, all of it on disk at the end."""
    with source.open(rejected, progress) as reader:
        named = reader.format.is_named
        facts, labels, types = reader.facts(), reader.labels(), source.type_relations
        num_triples = write_graph(directory, facts, labels, named=named, type_relations=types)
        content = f"{LAYOUT} {reader.digest()}"
    if num_triples == 0:
        raise GraphLoadError(source.files[0], "the file holds no triples")
    version = hashlib.sha256(content.encode()).hexdigest()[:12]
    opened = OxigraphStore(directory, version=version, named=named)
    if reader.format is GraphFormat.ROG:
        write_set(directory / SUBGRAPHS, partial(_write_given, source.files[0], opened))
    manifest = GraphManifest(
        name=name,
        version=version,
        content=version,
        format=reader.format,
        triples=opened.triples,
        entities=opened.entities,
        source=", ".join(path.name for path in source.files),
        loaded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        skipped_lines=rejected.count,
    )
    _finish(directory, manifest)
    return manifest


def _write_given(records: Path, store: OxigraphStore, directory: Path) -> SubgraphSet:
    """The subgraphs that came with their questions; they are read once more, now that nodes have numbers."""
    with SubgraphWriter(store, directory, source=records.name, seed=Seed.GIVEN) as writer:
        with open_source(records) as source:
            for record in read_records(source, lambda line, reason: None):
                writer.add_triples(record.id, record.triples)
        return writer.finish()


def attach_version(directory: Path, name: str, endpoint: Endpoint, *, count_s: float) -> GraphManifest:
    """Fill a directory with a version that stands for the graph at an endpoint.

    Args:
        count_s: how long its triples, and then its entities, may be counted.

    Raises:
        GraphUnavailableError: it does not answer.
        ConfigurationError: it holds no triples.
    """
    server = find_server(endpoint)
    if endpoint.server is ServerKind.OTHER:
        endpoint = replace(endpoint, server=server)
    attached_at = datetime.now(UTC)
    content = json.dumps([endpoint.to_json(), attached_at.isoformat()])
    version = hashlib.sha256(content.encode()).hexdigest()[:12]
    store = EndpointStore(endpoint, version=version)
    manifest = GraphManifest(
        name=name,
        version=version,
        content=version,
        format=None,
        triples=_counted(store.count_triples, count_s),
        entities=_counted(store.count_entities, count_s),
        source=endpoint.url,
        loaded_at=attached_at.isoformat(timespec="seconds"),
        endpoint=endpoint,
    )
    store.close()
    _finish(directory, manifest)
    return manifest


def _counted(count: Callable[..., int], deadline_s: float) -> int | None:
    try:
        return count(deadline_s=deadline_s)
    except QueryError:
        return None


def extend_version(
    directory: Path, before: Path, store: OxigraphStore, write: Callable[[OxigraphStore, Path], SubgraphSet]
) -> tuple[GraphManifest, SubgraphSet]:
    """Fill a directory with a version that has one more set of subgraphs than another.

    Args:
        before: directory of the other, of which `store` is open.
        write: fills an empty directory with the set.
    """
    _link(before, directory)
    sets = directory / SUBGRAPHS
    added = write_set(sets, partial(write, store))
    manifest = read_manifest(before)
    content = " ".join([manifest.content, *set_digests(sets)])
    version = hashlib.sha256(content.encode()).hexdigest()[:12]
    # Every answer carries the version, and so do runs: a figure that owes to a leak shows it.
    if any(stored.leaking for stored in list_sets(sets)):
        version += "-leaking"
    manifest = replace(manifest, version=version)
    _finish(directory, manifest)
    return manifest, added


def _link(version: Path, directory: Path) -> None:
    """Share a version's files; none of them ever changes."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # the file system has no hard links
            shutil.copy2(source, target)

    own = shutil.ignore_patterns("lock", "manifest.json")
    shutil.copytree(version, directory, ignore=own, copy_function=link, dirs_exist_ok=True)


def _finish(directory: Path, manifest: GraphManifest) -> None:
    """Write the manifest, and see to it that all of the version is on disk."""
    (directory / "manifest.json").write_text(json.dumps(asdict(manifest), indent=2) + "\n")
    for entry in sorted(directory.rglob("*"), reverse=True):
        sync(entry)
    sync(directory)


def read_manifest(directory: Path) -> GraphManifest:
    fields = json.loads((directory / "manifest.json").read_text())
    format = GraphFormat(fields["format"]) if fields["format"] else None
    endpoint = Endpoint.from_json(fields["endpoint"]) if fields.get("endpoint") else None
    return GraphManifest(**fields | {"format": format, "endpoint": endpoint})


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

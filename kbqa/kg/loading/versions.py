"""Versions of graphs on disk: the contents of a version's directory, and how they are written.

manifest.json   metadata, readable without opening the graph
store/          Oxigraph, for SPARQL
index/          for one-hop look-ups
subgraphs/      per-question subgraphs, if any
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
    """Metadata of a version, readable without opening it.

    Attributes:
        content: hash of the triples alone; equal for versions that differ only in subgraphs.
        format: of the loaded files; None for an attached graph.
        triples, entities: counts; None if an endpoint could not count them in time.
        source: names of the loaded files, or the endpoint's URL.
        skipped_lines: number of lines that could not be read.
        endpoint: of an attached graph; None for a loaded one.
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
    """Write a version of a graph into a directory, and sync it to disk."""
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
    """Write the subgraphs that came with the questions; reads them again, since nodes now have numbers."""
    with SubgraphWriter(store, directory, source=records.name, seed=Seed.GIVEN) as writer:
        with open_source(records) as source:
            for record in read_records(source, lambda line, reason: None):
                writer.add_triples(record.id, record.triples)
        return writer.finish()


def attach_version(directory: Path, name: str, endpoint: Endpoint, *, count_s: float) -> GraphManifest:
    """Write a version that represents the graph at an endpoint into a directory.

    Args:
        count_s: seconds allowed for counting the triples, and again for the entities.

    Raises:
        GraphUnavailableError: the endpoint does not answer.
        ConfigurationError: the endpoint holds no triples.
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
    """Write a version that adds one set of subgraphs to a previous version.

    Args:
        before: directory of the previous version, which is open as `store`.
        write: writes the set into an empty directory.
    """
    _link(before, directory)
    sets = directory / SUBGRAPHS
    added = write_set(sets, partial(write, store))
    manifest = read_manifest(before)
    content = " ".join([manifest.content, *set_digests(sets)])
    version = hashlib.sha256(content.encode()).hexdigest()[:12]
    # Answers and runs record the version, so that figures obtained with leaking subgraphs are marked.
    if any(stored.leaking for stored in list_sets(sets)):
        version += "-leaking"
    manifest = replace(manifest, version=version)
    _finish(directory, manifest)
    return manifest, added


def _link(version: Path, directory: Path) -> None:
    """Share a version's files, which never change, by hard links."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # the file system has no hard links
            shutil.copy2(source, target)

    own = shutil.ignore_patterns("lock", "manifest.json")
    shutil.copytree(version, directory, ignore=own, copy_function=link, dirs_exist_ok=True)


def _finish(directory: Path, manifest: GraphManifest) -> None:
    """Write the manifest, and sync the whole version to disk."""
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

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kbqa.errors import ConfigurationError, GraphLoadError, QueryError
from kbqa.kg.embedded.oxigraph import INDEX, STORE, SUBGRAPHS, OxigraphStore, write_graph
from kbqa.kg.endpoint.discovery import find_labels, find_server, some_iris
from kbqa.kg.endpoint.record import LABEL_PROPERTIES, Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.languages import DEFAULT_LANGUAGES
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.lines import Progress, open_source
from kbqa.kg.loading.publishing import sync
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.loading.rog import read_records
from kbqa.kg.loading.views import ViewFacts, ViewLimits
from kbqa.kg.namespaced import NamespacedStore, with_namespaces
from kbqa.kg.namespaces import Namespace, NamespaceOptions, Namespaces
from kbqa.kg.store import GraphInfo
from kbqa.kg.subgraphs import Seed, SubgraphSet, SubgraphWriter, list_sets, set_digests, write_set

# Part of a version's hash: raise it when the layout on disk or the mapping of names changes.
LAYOUT = 2
# Nodes whose IRIs are looked at to recognise namespaces.
_SAMPLED_NODES = 10_000


@dataclass(frozen=True, slots=True)
class ViewOf:
    """The version of a graph that a view was made from, and what the view holds of it."""

    graph: str
    version: str
    limits: ViewLimits


@dataclass(frozen=True, slots=True)
class ChangesOf:
    """What a version that changed has more and less than the version that was last written whole.

    Attributes:
        base: name of that version.
        number: of the version, counted from the base.
        inserted, deleted: number of triples that it has more, and less.
    """

    base: str
    number: int
    inserted: int
    deleted: int


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
        namespaces: that make its ids short.
        view: for a view, the graph that it shows a part of.
        changes: since the graph was written whole; None if there are none.
        lost_relations: relations that facts had when the graph was loaded, and that no fact has any more.
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
    namespaces: Namespaces = Namespaces()
    view: ViewOf | None = None
    changes: ChangesOf | None = None
    lost_relations: tuple[str, ...] = ()

    def info(self) -> GraphInfo:
        deadline_s = None if self.endpoint is None else self.endpoint.query_deadline_s
        return GraphInfo(
            self.name, self.version, self.triples, self.entities, self.lost_relations, deadline_s
        )


def write_version(
    directory: Path,
    name: str,
    source: GraphSource,
    naming: NamespaceOptions,
    languages: Sequence[str],
    rejected: RejectedLines,
    progress: Progress | None,
) -> GraphManifest:
    """Write a version of a graph into a directory, and sync it to disk."""
    with source.open(rejected, progress) as reader:
        named = reader.format.is_named
        facts, labels, types = reader.pieces(), reader.labels(), source.type_relations
        num_triples = write_graph(
            directory, facts, labels, named=named, type_relations=types, languages=languages
        )
        content = f"{LAYOUT} {reader.digest()}"
    if not named and tuple(languages) != DEFAULT_LANGUAGES:
        content += f" {' '.join(languages)}"
    if num_triples == 0:
        raise GraphLoadError(source.files[0], "the file holds no triples")
    opened = OxigraphStore(directory, version="", named=named)
    if named and opened.type_relations:
        content += f" {opened.type_relations}"  # earlier versions of kbqa did not recognise them
    namespaces = Namespaces() if named else naming.namespaces(_some_iris(opened))
    if namespaces:
        content += f" {namespaces.declared}"
    version = hashlib.sha256(content.encode()).hexdigest()[:12]
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
        namespaces=namespaces,
    )
    finish(directory, manifest)
    return manifest


def _some_iris(store: OxigraphStore) -> Iterator[str]:
    """The relations of a graph, and entities from all parts of its alphabet."""
    yield from (item.id for item in store.relations())
    total = store.num_nodes
    yield from (store.id_at(number) for number in range(0, total, max(1, total // _SAMPLED_NODES)))


def _write_given(records: Path, store: OxigraphStore, directory: Path) -> SubgraphSet:
    """Write the subgraphs that came with the questions; reads them again, since nodes now have numbers."""
    with SubgraphWriter(store, directory, source=records.name, seed=Seed.GIVEN) as writer:
        with open_source(records) as source:
            for record in read_records(source, lambda line, reason: None):
                writer.add_triples(record.id, record.triples)
        return writer.finish()


def attach_version(
    directory: Path, name: str, endpoint: Endpoint, naming: NamespaceOptions, *, count_s: float
) -> GraphManifest:
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
    looked_at = EndpointStore(endpoint, version="")
    namespaces = naming.namespaces(some_iris(looked_at, deadline_s=endpoint.deadline_s))
    if endpoint.labels == LABEL_PROPERTIES:
        endpoint = replace(endpoint, labels=find_labels(looked_at, namespaces))
    looked_at.close()
    attached_at = datetime.now(UTC)
    content = json.dumps([endpoint.to_json(), namespaces.declared, attached_at.isoformat()])
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
        namespaces=namespaces,
    )
    store.close()
    finish(directory, manifest)
    return manifest


def write_view(
    directory: Path, name: str, before: Path, whole: GraphManifest, store: OxigraphStore, limits: ViewLimits
) -> GraphManifest:
    """Write a version that holds a part of another graph's facts.

    Args:
        before: directory of that graph's version, which is open as `store`.
        whole: its manifest.

    Raises:
        ConfigurationError: a limit names nothing in the graph, or no fact satisfies all limits.
    """
    shown = with_namespaces(store, whole.namespaces)
    below = shown.iris if isinstance(shown, NamespacedStore) else list
    chosen = ViewFacts(store, shown, below, limits)
    num_triples = write_graph(
        directory,
        chosen.facts(),
        chosen.labels(before / STORE),
        named=store.of_names,
        type_relations=chosen.type_relations,
    )
    if num_triples == 0:
        raise ConfigurationError(f'no fact of "{whole.name}" satisfies all limits of the view "{name}"')
    opened = OxigraphStore(directory, version="", named=store.of_names)
    # A prefix would tell that the rest of the graph has such ids.
    namespaces = Namespaces(tuple(n for n in whole.namespaces.declared if chosen.begins_with(n.iri)))
    content = json.dumps([LAYOUT, "view", whole.version, limits.to_json()])
    version = hashlib.sha256(content.encode()).hexdigest()[:12]
    manifest = GraphManifest(
        name=name,
        version=version,
        content=version,
        format=whole.format,
        triples=opened.triples,
        entities=opened.entities,
        source=whole.name,
        loaded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        namespaces=namespaces,
        view=ViewOf(whole.name, whole.version, limits),
    )
    finish(directory, manifest)
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
    link(before, directory)
    sets = directory / SUBGRAPHS
    added = write_set(sets, partial(write, store))
    manifest = read_manifest(before)
    content = " ".join([manifest.content, *set_digests(sets)])
    version = hashlib.sha256(content.encode()).hexdigest()[:12]
    # Answers and runs record the version, so that figures obtained with leaking subgraphs are marked.
    if any(stored.leaking for stored in list_sets(sets)):
        version += "-leaking"
    manifest = replace(manifest, version=version)
    finish(directory, manifest)
    return manifest, added


def link(version: Path, directory: Path) -> None:
    """Share a version's files, which never change, by hard links."""

    def link_file(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # the file system has no hard links
            shutil.copy2(source, target)

    own = shutil.ignore_patterns("lock", "manifest.json", "changes", "replies.json")
    shutil.copytree(version, directory, ignore=own, copy_function=link_file, dirs_exist_ok=True)


def finish(directory: Path, manifest: GraphManifest, *, shared: bool = False) -> None:
    """Write the manifest, and sync the whole version to disk.

    Args:
        shared: whether the store and the index are links to files that were synced before.
    """
    fields = asdict(manifest) | {"namespaces": dict(manifest.namespaces.declared)}
    (directory / "manifest.json").write_text(json.dumps(fields, indent=2) + "\n")
    for entry in sorted(directory.rglob("*"), reverse=True):
        if not shared or entry.is_dir() or entry.parent.name not in (STORE, INDEX):
            sync(entry)
    sync(directory)


def read_manifest(directory: Path) -> GraphManifest:
    fields = json.loads((directory / "manifest.json").read_text())
    format = GraphFormat(fields["format"]) if fields["format"] else None
    endpoint = Endpoint.from_json(fields["endpoint"]) if fields.get("endpoint") else None
    # Versions from before there were namespaces have none.
    namespaces = Namespaces(tuple(map(Namespace._make, fields.get("namespaces", {}).items())))
    parsed: dict[str, Any] = {"format": format, "endpoint": endpoint, "namespaces": namespaces}
    if (changes := fields.get("changes")) is not None:
        parsed["changes"] = ChangesOf(**changes)
    if (view := fields.get("view")) is not None:
        limits = ViewLimits(**{name: tuple(values) for name, values in view["limits"].items()})
        parsed["view"] = ViewOf(view["graph"], view["version"], limits)
    parsed["lost_relations"] = tuple(fields.get("lost_relations", ()))
    return GraphManifest(**fields | parsed)

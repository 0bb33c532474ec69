"""The graphs of one home directory: loads are atomic, and running processes pick up new versions.

    HOME/graphs/NAME/current              names the version in use, replaced atomically
    HOME/graphs/NAME/VERSION/manifest.json
    HOME/graphs/NAME/VERSION/store/       Oxigraph, for SPARQL
    HOME/graphs/NAME/VERSION/index/       for one-hop look-ups
    HOME/graphs/NAME/VERSION/subgraphs/   per-question subgraphs, if any
    HOME/graphs/NAME/VERSION/changes/     of a version that changed (`loading.changing`)
    HOME/graphs/NAME/VERSION/lock         held shared to read the version, exclusively to remove it
    HOME/graphs/NAME/.changing            held to change the graph

A version never changes. It is written to a temporary directory, synced and renamed before
`current` names it. It is removed once another version is current and nobody has it open.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kbqa.errors import ConfigurationError, GraphNotFoundError, GraphUnavailableError, GraphWriteError
from kbqa.kg.embedded.changed import ChangedStore
from kbqa.kg.embedded.oxigraph import SUBGRAPHS, OxigraphStore
from kbqa.kg.endpoint.record import Endpoint
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.languages import DEFAULT_LANGUAGES, check_languages
from kbqa.kg.loading.changing import read_difference
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.lines import Progress
from kbqa.kg.loading.publishing import aside, publish, try_lock
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.loading.versions import (
    LAYOUT,
    GraphManifest,
    attach_version,
    extend_version,
    read_manifest,
    write_version,
    write_view,
)
from kbqa.kg.loading.views import ViewLimits
from kbqa.kg.namespaced import with_namespaces
from kbqa.kg.namespaces import RECOGNISED, NamespaceOptions
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.store import GraphInfo, GraphStore
from kbqa.kg.subgraphs import SubgraphSet, list_sets

logger = logging.getLogger(__name__)

# Attempts to read the current version before the graph counts as missing.
_READS = 10

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# A view is named after its graph: films@public.
_VIEW = re.compile(rf"(?P<graph>{_NAME.pattern})@{_NAME.pattern}")


_HOW_TO_NAME = 'use up to 64 letters, digits, ".", "_", "-", beginning with a letter or digit'


@dataclass(slots=True)
class _Opened:
    """An open graph: as callers see it, and below its namespaces."""

    store: GraphStore
    below: GraphStore
    checked_at: float = 0.0


class GraphCatalog:
    """The graphs under a home directory; safe for many threads and many processes.

    Args:
        home: `KBQA_HOME`; created by the first load.
        queries: executes the SPARQL of all graphs; closed with the catalog.
        recheck_s: seconds between checks for a newer version.
    """

    def __init__(self, home: Path, *, queries: QueryPool | None = None, recheck_s: float = 0.5) -> None:
        self.root = home / "graphs"
        self.queries = queries or QueryPool()
        self._recheck_s = recheck_s
        self._opened: dict[str, _Opened] = {}
        # Versions that this process made, until they are opened.
        self._made: dict[str, ChangedStore] = {}
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def load(
        self,
        name: str,
        source: Path | GraphSource,
        *,
        format: GraphFormat | None = None,
        naming: NamespaceOptions = RECOGNISED,
        languages: Sequence[str] = DEFAULT_LANGUAGES,
        rejected: RejectedLines | None = None,
        progress: Progress | None = None,
    ) -> GraphInfo:
        """Load one or more files as the graph `name`, replacing its previous facts.

        Nothing changes unless every line is valid or `rejected` skips invalid ones. If two
        loads run at the same time, the one that finishes last wins.

        Args:
            format: of a single file, if it cannot be detected.
            naming: which namespaces make ids short, if the files are RDF.
            languages: of the labels in RDF, the preferred one first.
            rejected: collects the lines that cannot be read.
            progress: receives how much of each file has been read.

        Raises:
            ConfigurationError: `name` is not a valid name, or options are wrong or conflict.
            GraphLoadError: a file cannot be read.
            GraphWriteError: the graph cannot be written, such as to a full disk.
        """
        if isinstance(source, Path):
            source = GraphSource([source], format)
        check_languages(languages)
        rejected = rejected or RejectedLines()
        try:
            graph = self._directory(name)
            with aside(graph) as written:
                manifest = write_version(written, name, source, naming, languages, rejected, progress)
                publish(graph, written, manifest.version)
        except OSError as error:
            raise GraphWriteError(
                f"graph {name} cannot be written to {self.root / name}: {error}: free some space or correct "
                "the permissions, then load it again"
            ) from error
        self.renew_views(name)
        return manifest.info()

    def attach(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        naming: NamespaceOptions = RECOGNISED,
        count_s: float = 10.0,
    ) -> GraphInfo:
        """Attach a SPARQL endpoint as the graph `name`, replacing the previous graph.

        Args:
            naming: which namespaces make ids short.
            count_s: seconds allowed for counting the triples, and again for the entities.

        Raises:
            ConfigurationError: `name` is not a valid name, or the endpoint holds no triples.
            GraphUnavailableError: the endpoint does not answer.
        """
        graph = self._directory(name)
        with aside(graph) as written:
            manifest = attach_version(written, name, endpoint, naming, count_s=count_s)
            publish(graph, written, manifest.version)
        return manifest.info()

    def add_subgraphs(self, name: str, write: Callable[[OxigraphStore, Path], SubgraphSet]) -> SubgraphSet:
        """Add a set of per-question subgraphs to a graph.

        This publishes a new version, since answers change; its triples are files shared with
        the previous version. An older set is dropped if the new one has all of its questions.

        Args:
            write: writes the set for the given graph, whose ids are IRIs if they are IRIs in its files,
                into an empty directory.

        Raises:
            GraphNotFoundError: no graph of that name is loaded.
            ConfigurationError: the graph is attached, not loaded.
            GraphUnavailableError: the graph was reloaded in the meantime.
        """
        self._require_whole(name)
        store, _ = self._open(name)
        if not isinstance(store, OxigraphStore):
            raise ConfigurationError(f'the graph "{name}" is at an endpoint: only loaded ones have subgraphs')
        graph = self.root / name
        with aside(graph) as written:
            manifest, added = extend_version(written, graph / store.version, store, write)
            check = partial(self.require_version, name, store.version, "run this command again")
            publish(graph, written, manifest.version, check)
        self.renew_views(name)
        return added

    def make_view(self, graph: str, view: str, limits: ViewLimits) -> GraphInfo:
        """Write the view `view` of a graph, as a graph named `graph@view`; it replaces a previous one.

        Whenever the graph is loaded again, its views are made again.

        Args:
            view: a name like that of a graph.

        Raises:
            GraphNotFoundError: no graph of that name is loaded.
            ConfigurationError: the graph is attached or itself a view, `view` is not a valid name, a limit
                names nothing in the graph, or no fact satisfies all limits.
        """
        name = f"{graph}@{view}"
        if not _VIEW.fullmatch(name):
            raise ConfigurationError(f'"{name[:130]}" cannot name a view: {_HOW_TO_NAME}')
        self._require_whole(graph)
        store, whole = self._open(graph)
        if not isinstance(store, OxigraphStore):
            raise ConfigurationError(f'the graph "{graph}" is at an endpoint: only loaded ones have views')
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        with aside(directory) as written:
            manifest = write_view(written, name, self.root / graph / whole.version, whole, store, limits)
            publish(directory, written, manifest.version)
        return manifest.info()

    def views(self, graph: str) -> dict[str, ViewLimits]:
        """The views of a graph by name, and what they hold; also those that are out of date."""
        found = {}
        for entry in sorted(self.root.glob(f"{graph}@*")):
            manifest = self.current(entry.name)
            if manifest is not None and manifest.view is not None:
                found[entry.name.partition("@")[2]] = manifest.view.limits
        return found

    def _require_whole(self, name: str) -> None:
        manifest = self.current(name)
        if manifest is not None and manifest.changes is not None:
            raise ConfigurationError(f'the graph "{name}" has changed: first run kbqa kg compact {name}')

    def latest(self, name: str) -> tuple[GraphStore, GraphStore, GraphManifest]:
        """The newest version as callers see it, and by the ids of its files, and its manifest.

        Raises:
            GraphNotFoundError: no graph of that name is loaded.
        """
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:
            self._refresh(name)
            opened = self._opened[name]
            return opened.store, opened.below, read_manifest(self.root / name / opened.below.version)

    def require_version(self, name: str, version: str, remedy: str) -> None:
        """Check that a version is still the current one of a graph.

        Args:
            remedy: what the caller's user can do if it is not.

        Raises:
            GraphUnavailableError: another one is, or none.
        """
        current = self.current(name)
        if current is None or current.version != version:
            raise GraphUnavailableError(f'the graph "{name}" was replaced in the meantime: {remedy}')

    def expect(self, name: str, made: ChangedStore) -> None:
        """Open a version that this process made, and will publish next, without reading it again."""
        self._made[name] = made

    def subgraphs(self, name: str) -> Sequence[SubgraphSet]:
        """The sets of per-question subgraphs of a graph, oldest first."""
        manifest = self.current(name)
        return [] if manifest is None else list_sets(self.root / name / manifest.version / SUBGRAPHS)

    def fresh(self, name: str) -> GraphStore | None:
        """The graph if it is open and was checked within `recheck_s`, else None; reads no file."""
        opened = self._opened.get(name)
        if opened is not None and time.monotonic() - opened.checked_at < self._recheck_s:
            return opened.store
        return None

    def get(self, name: str) -> GraphStore:
        """The newest version of a graph; opens it if necessary.

        While one thread opens a newer version, other threads get the previous one.

        Raises:
            GraphNotFoundError: no graph of that name is loaded.
        """
        store = self.fresh(name)
        if store is not None:
            return store
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        opened = self._opened.get(name)
        if not opening.acquire(blocking=opened is None):
            assert opened is not None
            return opened.store
        try:
            return self._refresh(name)
        finally:
            opening.release()

    def list(self) -> list[GraphInfo]:
        """All loaded and attached graphs, sorted by name."""
        if not self.root.is_dir():
            return []
        names = sorted(entry.name for entry in self.root.iterdir() if _is_name(entry.name))
        return [manifest.info() for name in names if (manifest := self.current(name)) is not None]

    def close(self) -> None:
        self._opened.clear()
        self.queries.close()

    def _directory(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f'"{name[:80]}" cannot name a graph: {_HOW_TO_NAME}')
        graph = self.root / name
        graph.mkdir(parents=True, exist_ok=True)
        return graph

    def _refresh(self, name: str) -> GraphStore:
        opened = self._opened.get(name)
        manifest = self.current(name)
        if manifest is None:
            self._opened.pop(name, None)
            raise GraphNotFoundError(name, [info.name for info in self.list()])
        self._require_current(manifest)
        if opened is None or opened.store.version != manifest.version:
            store, manifest = self._open(name)
            opened = _Opened(with_namespaces(store, manifest.namespaces), store)
            self._opened[name] = opened
        opened.checked_at = time.monotonic()
        return opened.store

    def renew_views(self, graph: str) -> None:
        """Make the views of a graph again; one that cannot be made is refused from now on."""
        for view, limits in self.views(graph).items():
            try:
                self.make_view(graph, view, limits)
            except ConfigurationError as error:
                logger.warning("view cannot be made again", extra={"view": view, "error": str(error)})

    def _require_current(self, manifest: GraphManifest) -> None:
        """Refuse a view of an older version, which may hold what was removed since."""
        view = manifest.view
        if view is None:
            return
        whole = self.current(view.graph)
        if whole is None or whole.version != view.version:
            raise GraphUnavailableError(
                f'the graph of the view "{manifest.name}" has changed: make the view again with kbqa kg view'
            )

    def current(self, name: str) -> GraphManifest | None:
        """The manifest of a graph's newest version; None if no graph of that name is loaded."""
        if not _is_name(name):
            return None
        graph = self.root / name
        try:
            manifest = _read_current(graph)
            if manifest.layout != LAYOUT:
                logger.warning(
                    "graph was loaded by another release of kbqa: load it again", extra={"graph": name}
                )
                return None
            return manifest
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError, KeyError, ConfigurationError):
            # One damaged graph must not hide the others.
            logger.warning("graph is damaged: load it again", extra={"graph": name})
            return None

    def _open(self, name: str) -> tuple[GraphStore, GraphManifest]:
        """The newest version, without its namespaces, and its manifest."""
        # A version read from `current` may be removed before it is locked: then another is current.
        while (manifest := self.current(name)) is not None:
            directory = self.root / name / manifest.version
            lock = try_lock(directory / "lock", fcntl.LOCK_SH)
            if lock is None:
                continue
            try:
                store = self._store(directory, manifest)
            except BaseException:
                os.close(lock)
                raise
            # Requests may still use the store after the catalog has switched to another.
            weakref.finalize(store, os.close, lock)
            return store, manifest
        raise GraphNotFoundError(name, [info.name for info in self.list()])

    def _store(self, directory: Path, manifest: GraphManifest) -> GraphStore:
        if manifest.endpoint is not None:
            return EndpointStore(
                manifest.endpoint,
                version=manifest.version,
                triples=manifest.triples,
                entities=manifest.entities,
                queries=self.queries,
                max_rows=self.queries.max_rows,
                max_bytes=self.queries.max_bytes,
            )
        assert manifest.format is not None
        named = manifest.format.is_named
        if manifest.changes is None:
            return OxigraphStore(directory, version=manifest.version, named=named, queries=self.queries)
        made = self._made.pop(manifest.name, None)
        if made is not None and made.version == manifest.version:
            return made
        base = self._base(manifest.name, manifest.changes.base)
        if base is None:
            base = OxigraphStore(directory, version=manifest.changes.base, named=named, queries=self.queries)
        difference = read_difference(directory, named=named)
        return ChangedStore(directory, base, difference, version=manifest.version, queries=self.queries)

    def _base(self, name: str, version: str) -> OxigraphStore | None:
        """The base of a graph's versions, if it is open."""
        below = self._opened[name].below if name in self._opened else None
        base = below.base if isinstance(below, ChangedStore) else below
        return base if isinstance(base, OxigraphStore) and base.version == version else None


class FixedGraphs:
    """`Graphs` over stores that are open already: for tests and programs with a graph of their own."""

    def __init__(self, stores: Mapping[str, GraphStore]) -> None:
        self._stores = dict(stores)

    def get(self, name: str) -> GraphStore:
        try:
            return self._stores[name]
        except KeyError:
            raise GraphNotFoundError(name, list(self._stores)) from None

    def list(self) -> list[GraphInfo]:
        return [
            GraphInfo(name, store.version, store.triples, store.entities)
            for name, store in sorted(self._stores.items())
        ]


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None or _VIEW.fullmatch(name) is not None


def _read_current(graph: Path) -> GraphManifest:
    for _ in range(_READS):
        version = (graph / "current").read_text().strip()
        # Between the two reads, another version may become current and this one be removed.
        with suppress(FileNotFoundError):
            return read_manifest(graph / version)
    raise FileNotFoundError(graph)

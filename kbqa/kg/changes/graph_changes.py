"""Changes graphs, for all processes at once."""

from __future__ import annotations

import fcntl
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from kbqa.errors import ChangeConflictError, GraphChangeError, GraphNotFoundError, GraphUnavailableError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.changes.batch import Batch, applied
from kbqa.kg.embedded.changed import ChangedStore
from kbqa.kg.embedded.overlay import Difference, NotAnOverlayError
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.loading.changing import (
    Changed,
    has_subgraphs,
    name_of_change,
    read_replies,
    rebased,
    write_anew,
    write_changed,
    write_replies,
)
from kbqa.kg.loading.publishing import aside, lock_file, publish
from kbqa.kg.loading.versions import GraphManifest
from kbqa.kg.store import GraphInfo, GraphStore

logger = logging.getLogger(__name__)

# Changes since the base, from which a graph is better written whole; and beyond which it always is.
COMPACTED_FROM, MAX_OVERLAID = 10_000, 50_000

# Reads a batch for a graph: as callers see it, and by the ids of its files.
ReadBatch = Callable[[GraphStore, OxigraphStore], Batch]


class GraphChanges:
    """Changes the graphs of a catalog; safe for many threads and many processes."""

    def __init__(self, catalog: GraphCatalog) -> None:
        self._catalog = catalog

    def should_be_compacted(self, name: str) -> bool:
        """Whether a graph has so many changes, or has views that do not show them."""
        manifest = self._catalog.current(name)
        changes = None if manifest is None else manifest.changes
        if changes is None:
            return False
        return changes.inserted + changes.deleted >= COMPACTED_FROM or bool(self._catalog.views(name))

    def change(self, name: str, read: ReadBatch, *, key: str = "") -> Changed:
        """Publish a version of a graph with a batch of changes, all of them or none.

        Requests under way keep the version that they began with; later ones, in all processes, get this one.

        Args:
            read: reads the batch for the graph, given as callers see it and by the ids of its files.
            key: names the batch: if it was applied before, that answer is given again.

        Raises:
            GraphNotFoundError: no graph of that name is loaded.
            ChangeConflictError: the graph takes no changes, or the key was used for another batch.
            GraphChangeError: the batch cannot be read, or would leave no triple.
            GraphUnavailableError: the graph was loaded again in the meantime.
        """
        self._require_changeable(name)
        graph = self._catalog.root / name
        with lock_file(graph / ".changing", fcntl.LOCK_EX):
            shown, store, manifest = self._catalog.latest(name)
            before = graph / manifest.version
            assert isinstance(store, OxigraphStore)
            batch = read(shown, store)
            replies = read_replies(before)
            if key in replies:
                digest, reply = replies[key]
                if digest != batch.digest:
                    raise ChangeConflictError(
                        "the idempotency key was used for another batch: choose a new one"
                    )
                return reply
            base, known = (
                (store.base, store.difference) if isinstance(store, ChangedStore) else (store, Difference())
            )
            done = applied(batch, base, known)
            counts = done.inserted, done.deleted, done.ignored
            if not done.inserted + done.deleted:
                return Changed(name, manifest.version, *counts, store.triples)
            if store.triples + done.inserted == done.deleted:
                raise GraphChangeError("the changes would leave no triple, and a graph has at least one")
            version, number = name_of_change(manifest, batch.digest)
            touched = {relation for _, relation, _ in batch.inserted | batch.deleted}
            touched.update(manifest.lost_relations)
            old, now = (_stated(touched, base, difference) for difference in (known, done.difference))
            lost, new = tuple(sorted(old - now)), tuple(sorted(now - old))
            gone = tuple(sorted({*manifest.lost_relations, *lost} - now))
            manifest = replace(manifest, lost_relations=gone)
            changed = self._overlaid(graph / version, base, done.difference)
            with aside(graph) as written:
                if changed is None:
                    made = write_anew(written, before, manifest, base, done.difference, changed=version)
                else:
                    sizes = changed.triples, changed.entities
                    made = write_changed(
                        written,
                        before,
                        manifest,
                        base,
                        done.difference,
                        sizes,
                        version=version,
                        number=number,
                    )
                num_triples = store.triples + done.inserted - done.deleted
                reply = Changed(name, made.version, *counts, num_triples, lost, new)
                write_replies(written, replies | ({key: (batch.digest, reply)} if key else {}))
                self._publish_next(name, written, made, expected=before.name)
            if changed is not None:
                self._catalog.expect(name, changed)
            self._catalog.latest(name)
        return reply

    def compact(self, name: str) -> GraphInfo:
        """Write a graph that changed whole, so that its look-ups read one index again; then its views.

        Changes may go on meanwhile; they are kept.

        Raises:
            GraphNotFoundError: no graph of that name is loaded.
            GraphUnavailableError: the graph was loaded again, or compacted, in the meantime.
        """
        _, store, manifest = self._catalog.latest(name)
        graph = self._catalog.root / name
        if not isinstance(store, ChangedStore):
            return manifest.info()
        with aside(graph) as written:
            made = write_anew(
                written,
                graph / manifest.version,
                manifest,
                store.base,
                store.difference,
                changed=manifest.version,
            )
            with lock_file(graph / ".changing", fcntl.LOCK_EX):
                _, now, latest = self._catalog.latest(name)
                replies = read_replies(graph / latest.version)
                if latest.version == manifest.version:
                    write_replies(written, replies)
                    self._publish_next(name, written, made, expected=latest.version)
                else:
                    if not isinstance(now, ChangedStore) or now.base is not store.base:
                        raise GraphUnavailableError(f'the graph "{name}" was written whole in the meantime')
                    made = replace(made, lost_relations=latest.lost_relations)
                    self._publish_rebased(name, written, made, store.difference, now, replies)
            self._catalog.latest(name)
        self._catalog.renew_views(name)
        return self._catalog.latest(name)[2].info()

    def _publish_rebased(
        self,
        name: str,
        written: Path,
        made: GraphManifest,
        compacted: Difference,
        now: ChangedStore,
        replies: dict[str, tuple[str, Changed]],
    ) -> None:
        """Publish a graph that was written whole with what changed since."""
        graph = self._catalog.root / name
        since = rebased(compacted, now.difference)
        version, number = name_of_change(made, now.version)
        base = OxigraphStore(written, version=made.version, named=now.of_names, queries=self._catalog.queries)
        changed = self._overlaid(graph / version, base, since)
        if changed is None:
            raise GraphUnavailableError(f'the graph "{name}" was changed in the meantime: compact it again')
        with aside(graph) as next_:
            sizes = changed.triples, changed.entities
            made = write_changed(next_, written, made, base, since, sizes, version=version, number=number)
            write_replies(next_, replies)
            self._publish_next(name, next_, made, expected=now.version)
        self._catalog.expect(name, changed)

    def _publish_next(self, name: str, written: Path, made: GraphManifest, *, expected: str) -> None:
        check = partial(self._catalog.require_version, name, expected, "send the changes again")
        publish(self._catalog.root / name, written, made.version, check)

    def _overlaid(self, version: Path, base: OxigraphStore, difference: Difference) -> ChangedStore | None:
        """The base with a difference; None if the graph has to be written anew."""
        if base.rules is None or len(difference) > MAX_OVERLAID:
            return None
        try:
            return ChangedStore(
                version, base, difference, version=version.name, queries=self._catalog.queries
            )
        except NotAnOverlayError as reason:
            logger.info("graph is written anew", extra={"version": version.name, "reason": str(reason)})
            return None

    def _require_changeable(self, name: str) -> None:
        manifest = self._catalog.current(name)
        if manifest is None:
            raise GraphNotFoundError(name, [info.name for info in self._catalog.list()])
        if manifest.view is not None:
            whole = manifest.view.graph
            raise ChangeConflictError(
                f'"{name}" is a view: change the graph "{whole}", of which it is a part'
            )
        if manifest.endpoint is not None:
            raise ChangeConflictError(
                f'the graph "{name}" is at an endpoint: change it there, then run kbqa kg attach again'
            )
        if has_subgraphs(self._catalog.root / name / manifest.version):
            raise ChangeConflictError(
                f'the graph "{name}" has per-question subgraphs, which were made from its facts: load it '
                "under another name to change it"
            )


def _stated(relations: Iterable[str], base: OxigraphStore, difference: Difference) -> set[str]:
    """Those of some relations, by id, that a fact has."""
    more = Counter(relation for _, relation, _ in difference.inserted)
    more.subtract(relation for _, relation, _ in difference.deleted)
    links = {relation: base.terms[1].number(relation) for relation in relations}
    there = base.with_more({link: -more[name] for name, link in links.items() if link is not None})
    return {name for name, link in links.items() if more[name] > 0 or link in there}

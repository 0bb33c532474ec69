"""Writes versions of graphs that changed: over the files of their base, or whole.

A version over a base has, besides links to the base's files,

    changes/…            what it has more and less than its base (`sparql.copies`)
    replies.json         what was answered to the latest batches with keys
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import numpy as np
import pyoxigraph as ox

from kbqa.kg.changes.batch import parsed
from kbqa.kg.embedded.overlay import Difference
from kbqa.kg.embedded.oxigraph import STORE, SUBGRAPHS, OxigraphStore, write_graph
from kbqa.kg.loading.facts import Fact, statement_quads
from kbqa.kg.loading.publishing import sync
from kbqa.kg.loading.stored import facts_of, labels_of, lines_of
from kbqa.kg.loading.versions import LAYOUT, ChangesOf, GraphManifest, finish, link
from kbqa.kg.sparql.copies import BASE, CHANGES, DELETED, INSERTED, STATEMENTS

_REPLIES = "replies.json"
_MAX_REPLIES = 256


@dataclass(frozen=True, slots=True)
class Changed:
    """What a batch did to a graph.

    Attributes:
        kg: name of the graph.
        version: of the graph with the changes; the previous one if there was nothing to do.
        inserted, deleted: number of triples that the graph got, and lost.
        ignored: number of triples that were there already, or were not there.
        triples: of the graph.
        lost_relations: relations without a fact, since this batch.
        new_relations: relations with their first fact, since this batch.
    """

    kg: str
    version: str
    inserted: int = 0
    deleted: int = 0
    ignored: int = 0
    triples: int = 0
    lost_relations: tuple[str, ...] = ()
    new_relations: tuple[str, ...] = ()


def name_of_change(before: GraphManifest, digest: str) -> tuple[str, int]:
    """The name of the version that a batch makes, and its number since the base.

    Args:
        digest: of the batch.
    """
    base = before.version if before.changes is None else before.changes.base
    number = 1 if before.changes is None else before.changes.number + 1
    content = hashlib.sha256(f"{before.version} {digest}".encode()).hexdigest()
    return f"{base}+{number}-{content[:8]}", number


def write_changed(
    directory: Path,
    before: Path,
    manifest: GraphManifest,
    base: OxigraphStore,
    difference: Difference,
    counts: tuple[int, int],
    *,
    version: str,
    number: int,
) -> GraphManifest:
    """Write a version with a difference to its base into a directory.

    Args:
        before: directory of any version with this base.
        manifest: of that version.
        counts: triples and entities of the new version.
    """
    link(before, directory)
    changes = directory / CHANGES
    changes.mkdir()
    (changes / INSERTED).write_text("".join(sorted(lines_of(difference.inserted, base))))
    (changes / DELETED).write_text("".join(sorted(lines_of(difference.deleted, base))))
    (changes / STATEMENTS).write_text("".join(sorted(_statements(base, difference))))
    (changes / BASE).write_text(base.version)
    manifest = replace(
        manifest,
        version=version,
        content=version,
        triples=counts[0],
        entities=counts[1],
        loaded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        changes=ChangesOf(base.version, number, len(difference.inserted), len(difference.deleted)),
    )
    finish(directory, manifest, shared=True)
    return manifest


def _statements(base: OxigraphStore, difference: Difference) -> Iterator[str]:
    """What the base's store says of the times of facts that are deleted, in N-Triples."""
    for triple in difference.deleted:
        edge = base.edge(*triple)
        times = () if edge is None else base.times_of(edge)
        if times:
            [quad] = ox.parse("".join(lines_of([triple], base)).encode(), format=ox.RdfFormat.N_TRIPLES)
            for time in times:
                statements = (said.triple for said in statement_quads(Fact(quad, time)))
                yield from (f"{said} .\n" for said in statements)


def read_difference(version: Path, *, named: bool) -> Difference:
    """What a version has more and less than its base."""
    changes = version / CHANGES
    return Difference(*(parsed((changes / file).read_bytes(), named=named) for file in (INSERTED, DELETED)))


def write_anew(
    directory: Path,
    before: Path,
    manifest: GraphManifest,
    base: OxigraphStore,
    difference: Difference,
    *,
    changed: str,
) -> GraphManifest:
    """Write a graph that has a difference to its base whole, as a base of its own.

    Args:
        before: directory of any version with this base.
        manifest: of that version.
        changed: name of the version with the difference.
    """
    kept = np.ones(base.triples, bool)
    kept[[edge for triple in difference.deleted if (edge := base.edge(*triple)) is not None]] = False
    added = "".join(sorted(lines_of(difference.inserted, base))).encode()
    write_graph(
        directory,
        chain(facts_of(base, kept), map(Fact, ox.parse(added, format=ox.RdfFormat.N_TRIPLES))),
        (label for _, label in labels_of(base, before / STORE)),
        named=base.of_names,
        type_relations=base.rules.type_relations,
        languages=base.rules.languages,
    )
    version = hashlib.sha256(json.dumps([LAYOUT, "anew", changed]).encode()).hexdigest()[:12]
    opened = OxigraphStore(directory, version=version, named=base.of_names)
    manifest = replace(
        manifest,
        version=version,
        content=version,
        triples=opened.triples,
        entities=opened.entities,
        loaded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        changes=None,
    )
    finish(directory, manifest)
    return manifest


def rebased(compacted: Difference, now: Difference) -> Difference:
    """The difference of a graph to one that was written whole while it changed further."""
    return Difference(
        (now.inserted - compacted.inserted) | (compacted.deleted - now.deleted),
        (compacted.inserted - now.inserted) | (now.deleted - compacted.deleted),
    )


def read_replies(version: Path) -> dict[str, tuple[str, Changed]]:
    """Key of a batch → the batch's digest, and what was answered; of the latest batches with keys."""
    try:
        stored = json.loads((version / _REPLIES).read_text())
    except FileNotFoundError:
        return {}
    return {key: (digest, _changed(fields)) for key, (digest, fields) in stored.items()}


def write_replies(version: Path, replies: dict[str, tuple[str, Changed]]) -> None:
    latest = list(replies.items())[-_MAX_REPLIES:]
    stored = {key: (digest, asdict(changed)) for key, (digest, changed) in latest}
    (version / _REPLIES).write_text(json.dumps(stored) + "\n")
    sync(version / _REPLIES)


def _changed(fields: dict[str, object]) -> Changed:
    relations = ("lost_relations", "new_relations")
    return Changed(**fields | {name: tuple(fields[name]) for name in relations})  # type: ignore[arg-type]


def has_subgraphs(version: Path) -> bool:
    return (version / SUBGRAPHS).is_dir()

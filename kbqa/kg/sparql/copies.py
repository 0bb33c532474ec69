"""A query process's own copy of a store, which it moves from version to version of a graph that changes.

A version that changed shares the files of its base's store and lists the triples that it has more and less:

    VERSION/changes/base            name of the base
    VERSION/changes/inserted.nt     triples that the base has not
    VERSION/changes/deleted.nt      triples of the base that the version has not
    VERSION/changes/statements.nt   what the base says of their times

A copy takes hard links, and is worth nothing once its process has ended.
"""

from __future__ import annotations

import os
import shutil
import weakref
from contextlib import ExitStack
from pathlib import Path

import pyoxigraph as ox

from kbqa.kg.loading.publishing import aside

CHANGES = "changes"
BASE, INSERTED, DELETED, STATEMENTS = "base", "inserted.nt", "deleted.nt", "statements.nt"

Lines = frozenset[bytes]


def base_of(version: Path) -> str | None:
    """The base of a version; None if it was written whole."""
    try:
        return (version / CHANGES / BASE).read_text()
    except FileNotFoundError:
        return None


class StoreCopy:
    """A copy of the store that versions of a graph share; for one thread.

    Args:
        version: directory of a version that changed.
        base: name of its base.
    """

    def __init__(self, version: Path, base: str) -> None:
        self.base = base
        held = ExitStack()
        with held:
            # Removed by whoever publishes the next version, if this process is killed.
            directory = held.enter_context(aside(version.parent)) / "store"
            directory.mkdir()
            for file in (version / "store").iterdir():
                # Files of sorted triples never change. The rest is written to, and small.
                if file.suffix == ".sst":
                    os.link(file, directory / file.name)
                elif file.name != "LOCK" and not file.name.startswith("LOG"):
                    shutil.copyfile(file, directory / file.name)
            self._store = ox.Store(str(directory))
            weakref.finalize(self, held.pop_all().close)
        self._more, self._less = Lines(), Lines()

    def at(self, version: Path) -> ox.Store:
        """The store of a version with the same base."""
        changes = version / CHANGES
        more = _lines(changes / INSERTED)
        less = _lines(changes / DELETED) | _lines(changes / STATEMENTS)
        for quad in _quads((self._more - more) | (less - self._less)):
            self._store.remove(quad)
        self._store.extend(_quads((more - self._more) | (self._less - less)))
        self._more, self._less = more, less
        return self._store


def _lines(path: Path) -> Lines:
    return frozenset(path.read_bytes().splitlines(keepends=True))


def _quads(lines: Lines) -> list[ox.Quad]:
    return list(ox.parse(b"".join(lines), format=ox.RdfFormat.N_TRIPLES))

"""Puts a version of a graph in its place, for all processes at once, and removes those that nobody uses."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_TEMPORARY = ".load-"  # beginning of the names of directories that are being written or removed


@contextmanager
def aside(graph: Path) -> Iterator[Path]:
    """A temporary directory for writing a version; removed at the end unless it was renamed."""
    with ExitStack() as held:
        # Under the graph's lock, because another load that finishes now removes unlocked directories.
        with lock_file(graph / ".lock", fcntl.LOCK_EX):
            directory = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=graph))
            held.callback(shutil.rmtree, directory, ignore_errors=True)
            held.enter_context(lock_file(directory / "lock", fcntl.LOCK_SH))
        yield directory


def publish(graph: Path, written: Path, version: str, check: Callable[[], None] = lambda: None) -> None:
    """Rename a version into its place, point at it, and remove the others that nobody uses.

    Args:
        check: raises if the version must not become current; called while nothing else is published.
    """
    with lock_file(graph / ".lock", fcntl.LOCK_EX):
        check()
        if not (graph / version).exists():
            written.rename(graph / version)
        pointer = written.with_suffix(".current")
        pointer.write_text(f"{version}\n")
        sync(pointer)
        pointer.replace(graph / "current")
        sync(graph)
        _remove_others(graph, version)


def _remove_others(graph: Path, current: str) -> None:
    """Remove the versions that are neither current nor in use. The caller holds the graph's lock."""
    for entry in graph.iterdir():
        if not entry.is_dir() or entry.name == current:
            continue
        lock = try_lock(entry / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is not None:
            # Renamed first, so that a partly removed version is never found under its name.
            removed = graph / f"{_TEMPORARY}removed-{entry.name}"
            entry.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)
            os.close(lock)
        elif entry.name.startswith(_TEMPORARY) and not (entry / "lock").exists():
            # Its process was killed while it created or removed this directory.
            shutil.rmtree(entry, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file, or the list of a directory's files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(path: Path, mode: int) -> Iterator[None]:
    """Hold a lock on a file, which is created if missing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, mode)
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path, mode: int) -> int | None:
    """A descriptor that holds the lock until closed; None if the file is gone or a LOCK_NB lock is taken."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, mode)
        if path.exists():
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None

"""Atomic writes: a file or directory is complete or absent, even after a crash.

Everything is written under a temporary name, flushed to the disk, and renamed into place.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of a disk that takes nothing more, for now."""

_ASIDE = ".aside-"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)  # SMB and some FUSE file systems


def write_file(path: Path, data: bytes) -> None:
    """Create or replace a file atomically."""
    aside = _aside(path)
    try:
        _write(aside, data)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)


def append_line(path: Path, line: bytes, *, max_bytes: int | None = None) -> bool:
    """Append a line to a file, which is made if necessary; the line is on disk when this returns.

    If an earlier writer died while writing, its incomplete line stays, and the new one begins after it.

    Args:
        line: without its end.
        max_bytes: size that the file may have.

    Returns:
        Whether it had room for the line.
    """
    with path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        text = line + b"\n"
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                text = b"\n" + text
        if max_bytes is not None and size + len(text) > max_bytes:
            return False
        rest = memoryview(text)
        while rest:  # of a disk that is nearly full, a write takes a part before the next one fails
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    if not size:
        sync_directory(path.parent)
    return True


def exists_now(path: Path) -> bool:
    """Whether a file or directory exists, even if another machine has just made or removed it.

    A network file system answers `stat` from its cache for up to a minute, and `open` for a name that was
    missing before. It asks its server when something that it knows is opened: the file, or its directory.

    Raises:
        OSError: the file system does not say.
    """
    return _opens(path) or (_opens(path.parent) and _opens(path))


def create_file(path: Path, data: bytes) -> bool:
    """Create a file atomically unless it is there already; returns whether it was created."""
    if exists_now(path):
        return False
    aside = _aside(path)
    try:
        _write(aside, data)
        _name(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


@contextmanager
def new_directory(parent: Path) -> Iterator[Path]:
    """A temporary directory to fill and pass to `put_in_place`; removed if that is not done in the block."""
    parent.mkdir(parents=True, exist_ok=True)
    aside = parent / f"{_ASIDE}{uuid.uuid4().hex}"
    aside.mkdir()
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_in_place(directory: Path, final: Path) -> None:
    """Flush a directory and all files in it, then rename it to `final`.

    Raises:
        OSError: `final` is a directory that is not empty.
    """
    for path in directory.rglob("*"):
        _sync(path)
    _sync(directory)
    directory.rename(final)
    sync_directory(final.parent)


def remove_directory(directory: Path) -> None:
    """Remove a directory so that nobody sees it half removed."""
    aside = directory.with_name(f"{_ASIDE}{uuid.uuid4().hex}")
    try:
        directory.rename(aside)
    except FileNotFoundError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def sweep(parent: Path, *, untouched_s: float = 0.0) -> None:
    """Remove temporary files of a writer that died.

    Args:
        untouched_s: how long they have not changed, in seconds; 0 is for the sole writer of `parent`.
    """
    for path in parent.glob(f"{_ASIDE}*"):
        if untouched_s and time.time() - _changed_at(path) < untouched_s:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _changed_at(path: Path) -> float:
    """When a file, or anything in a directory, was changed last; now if it has just gone."""
    try:
        return max(one.stat().st_mtime for one in (path, *path.rglob("*")))
    except FileNotFoundError:
        return time.time()


def sync_directory(directory: Path) -> None:
    """Flush a directory's entries, so that a rename survives a power cut."""
    _sync(directory)


def _name(aside: Path, path: Path) -> None:
    """Give a file its name; raises `FileExistsError` where a rename would replace another file."""
    try:
        os.link(aside, path)
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    # Only one writer can make the claim. If it dies holding it, `sweep` takes it away.
    claim = path.with_name(f"{_ASIDE}claim-{path.name}")
    claim.open("x").close()
    try:
        if exists_now(path):
            raise FileExistsError(path)
        os.rename(aside, path)
    finally:
        claim.unlink()


def _opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f"{_ASIDE}{uuid.uuid4().hex}")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Directories for graphs that are needed only as long as a process lives."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path
from typing import Self

from kbqa.kg.loading.publishing import try_lock

_PREFIX, _LOCK = "kbqa-graph-", "scratch.lock"
# Age from which a directory without a lock is not one that is just being made.
_UNLOCKED_S = 86_400.0


class ScratchDirectory:
    """A temporary directory, which exists until it is closed or nobody refers to it any more.

    A process that is killed leaves its directories behind. The next one that makes a directory in the same
    place removes them.

    Args:
        parent: where to make it (default: the system's directory for temporary files).

    Attributes:
        path: of the directory.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        _sweep(parent)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            (self.path / _LOCK).touch()
            lock = try_lock(self.path / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:  # else another process has just removed it
                break
        self._remove = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the directory; does nothing the second time."""
        self._remove()


def _sweep(parent: Path) -> None:
    """Remove what processes of this user have left behind."""
    for left in parent.glob(f"{_PREFIX}*"):
        try:
            found = left.lstat()
            has_lock = (left / _LOCK).exists()
        except OSError:
            continue  # removed meanwhile, or somebody else's
        if found.st_uid != os.geteuid() or left.is_symlink():
            continue
        if not has_lock:
            if time.time() - found.st_mtime > _UNLOCKED_S:
                shutil.rmtree(left, ignore_errors=True)
        elif (lock := try_lock(left / _LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
            _remove(left, lock)


def _remove(directory: Path, lock: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    os.close(lock)

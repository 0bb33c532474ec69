"""A machine on a network file system (NFS) that answers from what it has cached."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class CachedAttributes:
    """Within `caching`, what `stat` said of a path holds until the path is opened, and that a path is missing
    holds until its directory is opened; files that other processes change are not noticed before."""

    def __init__(self) -> None:
        self._said: dict[str, os.stat_result | None] = {}

    @contextmanager
    def caching(self, monkeypatch: Any) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", self._stat(os.stat))
            patch.setattr(os, "open", self._opening(os.open))
            patch.setattr(io, "open", self._opening(io.open))
            yield

    def _stat(self, stat: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def cached(path: Any, **options: Any) -> os.stat_result:
            if isinstance(path, int):
                return stat(path, **options)
            name = os.fspath(path)
            if name not in self._said:
                try:
                    self._said[name] = stat(path, **options)
                except FileNotFoundError:
                    self._said[name] = None
            if (said := self._said[name]) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            return said

        return cached

    def _opening(self, open_: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(path, int):
                return open_(path, *arguments, **options)
            name = os.fspath(path)
            if name in self._said and self._said[name] is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self._said.pop(name, None)
            for known in [known for known in self._said if Path(known).parent == Path(name)]:
                del self._said[known]
            return open_(path, *arguments, **options)

        return opening

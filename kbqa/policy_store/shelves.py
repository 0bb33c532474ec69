"""Where a policy store keeps its files: in a directory, or at a remote URL with a local cache.

Paths are relative, with slashes, and consist of names that the store has checked.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from kbqa.errors import ConfigurationError, PolicyStoreUnavailableError
from kbqa.policy_store.durable import (
    exists_now,
    new_directory,
    put_in_place,
    remove_directory,
    sweep,
    write_file,
)
from kbqa.policy_store.manifest import MANIFEST_NAME
from kbqa.retries import retry

T = TypeVar("T")

_LISTED_S = 1.0  # how long the listing of a remote directory is reused
_PATIENCE_S = 120.0
_LOCAL_PATIENCE_S = 20.0
_CACHED_VERSIONS = 4  # of a run
_SPARED_S = 300.0  # since a process last said that it uses a cached version
_UNTOUCHED_S = 86_400.0  # age from which an incomplete download belongs to a process that died
# Errors of a disk or its server that say nothing about a file.
_PASSING = frozenset(
    {
        errno.ESTALE,
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.ENOTCONN,
    }
)


class Shelf(Protocol):
    """The files of a policy store.

    Attributes:
        path: the local directory for versions that are on this machine.
    """

    path: Path

    def names(self, under: str) -> list[str]:
        """The names in a directory; none if it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file exists now, without regard to earlier listings and caches."""
        ...

    def read(self, path: str) -> bytes:
        """Raises: FileNotFoundError."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, whole or not at all."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        ...

    def sweep(self, under: str) -> None:
        """Remove what writers of this directory that died left on this machine."""
        ...

    def publish(self, directory: Path, path: str) -> None:
        """Publish a local directory, which is moved, as a version; its manifest comes last."""
        ...

    def bring(self, path: str, files: Iterable[str]) -> None:
        """Copy these files of a version to this machine, if necessary. Raises: FileNotFoundError."""
        ...

    def use(self, path: str) -> bool:
        """Keep the local copy of a version for a while; whether there is one."""
        ...

    def forget(self, path: str) -> None:
        """Remove the local copy of a version, because it is damaged."""
        ...

    def discard(self, path: str) -> None:
        """Remove a version's directory, with any local copy."""
        ...


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """Translates errors of the disk that holds `path`, or of its server.

    Raises:
        PolicyStoreUnavailableError: in place of an error that may pass by itself.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _PASSING:
            raise
        raise PolicyStoreUnavailableError(
            f"the policy store at {path} fails ({error.strerror}): check its disk, its server and its free "
            "space"
        ) from error


def _retried(attempt: Callable[[], T], patience_s: float, until: threading.Event | None) -> T:
    return retry(
        attempt,
        on=PolicyStoreUnavailableError,
        patience_s=patience_s,
        first_pause_s=0.5,
        longest_pause_s=10.0,
        until=until,
    )


def _used_at(path: Path) -> float:
    """When a cached version was last used, in seconds since the epoch; now if it has just been removed."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()


class LocalShelf:
    """A directory, which several machines may share.

    Where its disk does not answer, is full, or has a stale handle (NFS), it is tried again for a while. Then
    it raises `PolicyStoreUnavailableError`: no version is to blame.

    Args:
        patience_s: how long it is tried again.
        until: takes the place of `patience_s`: it is tried until it answers or this is set.
    """

    def __init__(
        self, path: Path, *, patience_s: float = _LOCAL_PATIENCE_S, until: threading.Event | None = None
    ) -> None:
        self.path, self._patience_s, self._until = path, patience_s, until

    def names(self, under: str) -> list[str]:
        try:
            return self._patiently(lambda: [path.name for path in (self.path / under).iterdir()])
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return self._patiently(partial(exists_now, self.path / path))

    def read(self, path: str) -> bytes:
        try:
            return self._patiently((self.path / path).read_bytes)
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error

    def write(self, path: str, data: bytes) -> None:
        def write() -> None:
            (self.path / path).parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path / path, data)

        self._patiently(write)

    def remove(self, path: str) -> None:
        self._patiently(partial((self.path / path).unlink, missing_ok=True))

    def sweep(self, under: str) -> None:
        sweep(self.path / under)

    def publish(self, directory: Path, path: str) -> None:
        put_in_place(directory, self.path / path)

    def bring(self, path: str, files: Iterable[str]) -> None:
        """The files are local already."""

    def use(self, path: str) -> bool:
        """There is no other copy, which `PolicyStore.retain` keeps."""
        return True

    def forget(self, path: str) -> None:
        """Does nothing, because there is no other copy."""

    def discard(self, path: str) -> None:
        self._patiently(partial(remove_directory, self.path / path))

    def _patiently(self, attempt: Callable[[], T]) -> T:
        return _retried(answering(self.path)(attempt), self._patience_s, self._until)


class RemoteShelf:
    """An S3-compatible bucket, or any other fsspec store that replaces objects atomically.

    Keys, region and endpoint come from the environment; for S3, from `AWS_ACCESS_KEY_ID`,
    `AWS_SECRET_ACCESS_KEY`, `AWS_DEFAULT_REGION` and `AWS_ENDPOINT_URL`.

    Args:
        url: `s3://bucket/prefix`.
        cache: directory for versions that were pulled; several processes may share it.
        patience_s: how long a failing store is tried again.
        until: takes the place of `patience_s`: it is tried until it answers or this is set.

    Raises:
        ConfigurationError: no installed package supports the URL's protocol.
    """

    def __init__(
        self,
        url: str,
        cache: Path,
        *,
        patience_s: float = _PATIENCE_S,
        until: threading.Event | None = None,
    ) -> None:
        self.path, self._url, self._patience_s, self._until = cache, url, patience_s, until
        self._listed: dict[str, tuple[float, list[str]]] = {}
        self._manifests: dict[str, bytes] = {}
        try:
            from fsspec.core import url_to_fs

            # Neither an old listing nor a connection to another endpoint may be reused.
            self._files, self._root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                f"KBQA_POLICY_STORE={url}: {error}; for s3://, run pip install 'kbqa[s3]'"
            ) from error

    def names(self, under: str) -> list[str]:
        until, names = self._listed.get(under, (0.0, []))
        if time.monotonic() > until:
            names = self._patiently(lambda: self._list(under))
            self._listed[under] = (time.monotonic() + _LISTED_S, names)
        return names

    def exists(self, path: str) -> bool:
        return bool(self._patiently(lambda: self._files.exists(self._at(path))))

    def read(self, path: str) -> bytes:
        if path in self._manifests:  # manifests never change
            return self._manifests[path]
        data: bytes = self._patiently(lambda: self._files.cat_file(self._at(path)))
        if path.endswith(f"/{MANIFEST_NAME}"):
            self._manifests[path] = data
        return data

    def write(self, path: str, data: bytes) -> None:
        self._put(partial(self._files.pipe_file, self._at(path), data))
        self._listed.clear()

    def remove(self, path: str) -> None:
        def remove() -> None:
            try:
                self._files.rm_file(self._at(path))
            except FileNotFoundError:
                return

        self._patiently(remove)
        self._manifests.pop(path, None)
        self._listed.clear()

    def sweep(self, under: str) -> None:
        # Other processes pull versions into the same directory.
        sweep(self.path / under, untouched_s=_UNTOUCHED_S)

    def publish(self, directory: Path, path: str) -> None:
        files = sorted(file for file in directory.rglob("*") if file.is_file())
        files.sort(key=lambda file: file.name == MANIFEST_NAME)
        for file in files:
            there = self._at(f"{path}/{file.relative_to(directory).as_posix()}")
            self._put(partial(self._files.put_file, str(file), there))
        self._listed.clear()
        if not (self.path / path).exists():  # else another process has pulled it meanwhile
            put_in_place(directory, self.path / path)

    def bring(self, path: str, files: Iterable[str]) -> None:
        here = self.path / path
        if self.use(path):
            return
        with new_directory(here.parent) as aside:
            for name in files:
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                there, to = self._at(f"{path}/{name}"), str(aside / name)
                self._patiently(partial(self._files.get_file, there, to))
            try:
                put_in_place(aside, here)
            except OSError:
                if not here.is_dir():  # else another process was faster
                    raise
        self.use(path)  # a long download began long ago
        self._tidy(here.parent)

    def use(self, path: str) -> bool:
        here = self.path / path
        with suppress(
            OSError
        ):  # one of another user, or on a disk that is read-only, can be read all the same
            os.utime(here)  # the other processes that share the cache see it
        return here.is_dir()

    def forget(self, path: str) -> None:
        remove_directory(self.path / path)

    def discard(self, path: str) -> None:
        def remove() -> None:
            try:
                self._files.rm(self._at(path), recursive=True)
            except FileNotFoundError:
                return

        self._patiently(remove)
        self._listed.clear()
        remove_directory(self.path / path)

    def _tidy(self, directory: Path) -> None:
        """Keep the versions of a run that were used last, and all that any process loads or uses now."""
        used = sorted((_used_at(path), path) for path in directory.iterdir() if not path.name.startswith("."))
        for _, path in used[:-_CACHED_VERSIONS]:
            if (
                time.time() - _used_at(path) > _SPARED_S
            ):  # as late as possible: another may just begin to use it
                with suppress(OSError):  # one of another user, who removes it
                    remove_directory(path)

    def _list(self, under: str) -> list[str]:
        try:
            found = self._files.ls(self._at(under), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for path in found if (name := str(path).rstrip("/").rpartition("/")[2])]

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")

    def _put(self, attempt: Callable[[], object]) -> None:
        try:
            self._patiently(attempt)
        except FileNotFoundError as error:
            raise ConfigurationError(
                f"{self._url} does not accept files ({error}): check that the bucket exists"
            ) from error

    def _patiently(self, attempt: Callable[[], T]) -> T:
        return _retried(self._translated()(attempt), self._patience_s, self._until)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise
        except PermissionError as error:  # another attempt does not help
            raise ConfigurationError(f"{self._url}: {error}: check the keys in the environment") from error
        except Exception as error:  # each protocol has its own errors
            reason = str(error) or type(error).__name__
            raise PolicyStoreUnavailableError(f"the policy store at {self._url} fails ({reason})") from error

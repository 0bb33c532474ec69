"""A run's durable inbox: one file for each reply as `kbqa.wire` encodes it, either complete or absent.

The service writes; the training process reads, and deletes replies that it no longer needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kbqa.errors import MessageError
from kbqa.policy_store.durable import create_file, sweep, sync_directory
from kbqa.wire import RolloutReply, decode, encode

_NAME = re.compile(r"^([a-z0-9][a-z0-9-]{0,127})\.json$")


class Inbox:
    """Replies by request id; the first one of an id stays."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def accept(self, reply: RolloutReply, encoded: str | None = None) -> bool:
        """Write a reply to the disk; False if its request was answered before.

        Args:
            encoded: the reply as it came, which spares encoding it again.
        """
        return create_file(self._path(reply.request_id), (encoded or encode(reply)).encode())

    def sweep(self) -> None:
        """Remove what a writer that died left behind; for the writer."""
        sweep(self._directory)

    def ids(self) -> list[str]:
        """Ids of the requests that were answered, in order."""
        return sorted(match[1] for path in self._directory.iterdir() if (match := _NAME.match(path.name)))

    def __contains__(self, request_id: str) -> bool:
        return self._path(request_id).exists()

    def read(self, request_id: str) -> RolloutReply:
        """The reply to a request.

        Raises:
            MessageError: the file is damaged.
        """
        try:
            return decode(RolloutReply, self._path(request_id).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise MessageError(f"{self._path(request_id)}: {error}") from error

    def discard(self, request_ids: Iterable[str]) -> None:
        """Remove replies; those that are not there do not matter."""
        for request_id in request_ids:
            self._path(request_id).unlink(missing_ok=True)
        sync_directory(self._directory)

    def _path(self, request_id: str) -> Path:
        name = f"{request_id}.json"
        if not _NAME.match(name):
            raise MessageError(f"request_id: {request_id!r} is not an id")
        return self._directory / name

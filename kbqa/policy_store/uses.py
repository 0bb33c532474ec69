"""Records which versions processes use, so that these are not removed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from kbqa.policy_store.shelves import Shelf

HELD_S = 3600.0
"""How long a declaration is valid; a process that was killed cannot withdraw it."""

_RENEWED_S = HELD_S / 4
_AT_A_TIME = 16  # declarations that are read side by side
_DIRECTORY = ".uses"
_HOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


class Uses:
    """One file for each process that uses any version."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._said: dict[str, tuple[list[str] | None, float]] = {}  # by holder, with the time

    def hold(self, holder: str, versions: Iterable[tuple[str, str]]) -> bool:
        """Record the versions, by run and id; False if the same were recorded recently.

        Raises:
            ValueError: the name of the process is invalid.
        """
        if not _HOLDER.match(holder):
            raise ValueError(f"{holder!r} is not a valid name of a process")
        names, now = sorted(f"{run}/{version}" for run, version in versions), time.time()
        said, at = self._said.get(holder, (None, 0.0))
        if said == names and now < at + _RENEWED_S:
            return False
        record = {"until": now + HELD_S, "versions": names}
        self._shelf.write(f"{_DIRECTORY}/{holder}.json", json.dumps(record).encode())
        self._said[holder] = (names, now)
        return True

    def of(self, run: str) -> set[str]:
        """Ids of the versions of a run that any process uses."""
        # A file without the suffix is being written.
        paths = [f"{_DIRECTORY}/{n}" for n in self._shelf.names(_DIRECTORY) if n.endswith(".json")]
        # Of a bucket, each is a request.
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            held = threads.map(self._read, paths)
            return {version for versions in held for its_run, version in versions if its_run == run}

    def _read(self, path: str) -> list[tuple[str, str]]:
        """The versions of one declaration, by run and id; removes it if it has expired."""
        # The file was removed meanwhile, or is not such a record.
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            record = json.loads(self._shelf.read(path))
            if float(record["until"]) < time.time():
                self._shelf.remove(path)
                return []
            pairs = (held.split("/", 1) for held in record["versions"])
            return [(run, version) for run, version in pairs]
        return []

"""Shared by the supervisors of child processes: back-off between restarts, descriptions of exits, logs."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LONGEST_LINE = 2**16  # bytes
_LONGEST_LOG = 2**25


@dataclass(frozen=True, slots=True)
class BackOff:
    """Pauses between the restarts of a process that keeps failing; each is twice the one before.

    Attributes:
        first_s, longest_s: bounds of the pause, in seconds.
    """

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """The pause after this number of failures in a row, which is at least one."""
        return min(self.first_s * 2.0 ** (failures - 1), self.longest_s)


def describe_exit(code: int) -> str:
    """How a process ended, as a predicate: "ended with code 2", "was killed by SIGKILL"."""
    return f"ended with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def last_line(log: Path) -> str | None:
    """The last line of a process's log; None if it is empty."""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST_LINE, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else None


def bound_log(log: Path) -> None:
    """Copy a long log aside, where it replaces the copy before, and empty it.

    A process that appends to it meanwhile goes on with the empty one; a line of this moment can be lost.
    Where there is no room for the copy, it is emptied all the same.
    """
    with suppress(FileNotFoundError):
        if log.stat().st_size > _LONGEST_LOG:
            with suppress(OSError):
                shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)

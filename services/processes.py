"""Shared by the supervisors of child processes: back-off between restarts, and descriptions of an exit."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path


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
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else None

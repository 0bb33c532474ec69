"""Bad lines of a load: all are counted, the first ones kept, and each optionally written to a report."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from kbqa.errors import GraphLoadError

_KEPT = 10


class RejectedLines:
    """Collects the lines that the readers of a load cannot read.

    Args:
        skip: whether the other lines are loaded anyway.
        report: receives a line `file:line: reason` for each bad line.

    Attributes:
        count: number of bad lines.
        first: errors of the first bad lines, at most ten.
    """

    def __init__(self, *, skip: bool = False, report: IO[str] | None = None) -> None:
        self.count = 0
        self.first: list[GraphLoadError] = []
        self._skip, self._report = skip, report

    def add(self, path: Path, line: int, reason: str) -> None:
        error = GraphLoadError(path, reason, line)
        self.count += 1
        if len(self.first) < _KEPT:
            self.first.append(error)
        if self._report is not None:
            self._report.write(f"{error}\n")

    def settle(self) -> None:
        """Finish the load; call it after everything was read.

        Raises:
            GraphLoadError: the first bad line, unless bad lines are skipped.
        """
        if self.first and not self._skip:
            raise self.first[0]

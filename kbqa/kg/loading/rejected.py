"""Bad lines of what is loaded: all counted, the first kept, each written to a report if one is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from kbqa.errors import GraphLoadError

_KEPT = 10


class RejectedLines:
    """Where the readers of a load put the lines that they cannot read.

    Args:
        skip: whether the other lines are loaded all the same.
        report: is given a line `file:line: reason` for each.

    Attributes:
        count: how many there are.
        first: the first of them.
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
        """To be called when everything was read.

        Raises:
            GraphLoadError: the first bad line, unless bad lines are skipped.
        """
        if self.first and not self._skip:
            raise self.first[0]

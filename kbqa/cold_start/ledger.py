"""Attempts on the disk, so that a teacher is not paid twice for the same question."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from kbqa.cold_start.collecting import Attempt
from kbqa.cold_start.files import read_lines
from kbqa.errors import DatasetError

_ATTEMPT = TypeAdapter(Attempt)


class AttemptLedger:
    """A file of attempts, one per line; a new process continues the file of an earlier one.

    Attributes:
        done: attempts by question id.

    Raises:
        DatasetError: the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.done: dict[str, Attempt] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                whole = path.read_bytes()
                # A process that was killed may have left half a line.
                if not whole.endswith(b"\n"):
                    path.write_bytes(whole[: whole.rfind(b"\n") + 1])
                self.done = {attempt.question: attempt for attempt in read_lines(path, _ATTEMPT)}
        except OSError as error:
            raise DatasetError(f"{path}: {error.strerror}") from error

    def add(self, attempt: Attempt) -> None:
        """Write an attempt to the file; once this returns, it survives the process."""
        try:
            with self._path.open("ab") as file:
                file.write(_ATTEMPT.dump_json(attempt) + b"\n")
        except OSError as error:
            raise DatasetError(
                f"{self._path} cannot be written ({error.strerror}): free some space, then repeat the "
                "command; it continues where it stopped"
            ) from error
        self.done[attempt.question] = attempt

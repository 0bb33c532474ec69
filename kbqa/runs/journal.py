"""What a training process reports: its progress, and a record of every step."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kbqa.policy_store.durable import write_file
from kbqa.runs.directory import RunDirectory
from kbqa.runs.record_file import RecordFile

logger = logging.getLogger(__name__)

DONE = "done"
"""The phase after the last one."""

_PROGRESS_S = 0.5  # how often progress within a phase is written


class Sink(Protocol):
    """Takes the records of one run."""

    def write(self, record: Mapping[str, Any]) -> None:
        """A record as `metrics.jsonl` has it."""
        ...

    def forget_after(self, phase: str, step: int) -> None:
        """What comes after `step` of a phase has been undone."""
        ...

    def close(self) -> None: ...


class Journal:
    """`progress.json` and `metrics.jsonl` of a run; continues where an earlier process ended.

    Args:
        sinks: get every record, too.

    Attributes:
        results: what the run has found so far, by name; survives a restart.
    """

    def __init__(self, directory: RunDirectory, sinks: Sequence[Sink] = ()) -> None:
        self._directory, self._sinks = directory, sinks
        progress = directory.progress()
        self._records = RecordFile(directory.metrics_path)
        self._records.cut()  # a process that was killed may have left half a line
        self._seq = max((record["seq"] for record in self._records.newest(1)), default=0)
        self._seconds_before = float(progress.get("seconds", 0.0))
        self._began = time.monotonic()
        self._written_at = 0.0
        self.results: dict[str, Any] = dict(progress.get("results", {}))
        self.phase, self._step, self._of = str(progress.get("phase", "prepare")), 0, 0

    @property
    def seconds(self) -> float:
        """Time that this run has been worked on, restarts included."""
        return self._seconds_before + time.monotonic() - self._began

    def enter(self, phase: str, of: int = 0) -> None:
        """A phase begins; it takes at most `of` steps."""
        self.phase, self._step, self._of = phase, 0, of
        logger.info("phase begins", extra={"phase": phase})
        self._write()

    def finish(self) -> None:
        """The last phase is over, and so is the run."""
        self.phase = DONE
        self._write()

    def advance(self, step: int) -> None:
        """`step` steps of the phase are finished."""
        self._step = step
        if time.monotonic() - self._written_at > _PROGRESS_S:
            self._write()

    def record(self, kind: str, values: Mapping[str, Any], step: int | None = None) -> None:
        """Append a record to the metrics.

        Args:
            kind: demonstrations, step, evaluation, stage (of a curriculum, begun), alarm, refused (a
                checkpoint), resumed, or ended (early).
            step: finished steps of the phase, if that has changed.
        """
        self._seq += 1
        self._step = self._step if step is None else step
        head = {
            "seq": self._seq,
            "time": round(time.time(), 3),
            "kind": kind,
            "phase": self.phase,
            "step": self._step,
            "of": self._of,
            "seconds": round(self.seconds, 3),
        }
        with self._directory.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**head, **values}) + "\n")
        self._write()
        for sink in self._sinks:
            sink.write({**head, **values})

    def keep(self, **results: Any) -> None:
        """Add to what the run has found."""
        self.results.update(results)
        self._write()

    def forget_after(self, step: int) -> None:
        """Remove the records of this phase's steps after `step`, which a restore has undone."""
        self._records.cut(lambda record: record["phase"] == self.phase and record["step"] > step)
        for sink in self._sinks:
            sink.forget_after(self.phase, step)

    def fail(self, reason: str) -> None:
        """The run cannot go on."""
        self._write(error=reason)

    def _write(self, error: str | None = None) -> None:
        self._written_at = time.monotonic()
        progress = {
            "phase": self.phase,
            "step": self._step,
            "of": self._of,
            "seconds": round(self.seconds, 3),
            "results": self.results,
            "error": error,
        }
        write_file(self._directory.progress_path, json.dumps(progress, indent=1).encode())

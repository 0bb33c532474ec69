"""The outcome of every requested group, and the versions that led to the current weights.

The invariant of training: in the history that leads to the current weights, every requested
group occurs exactly once, either trained on, or dropped with a reason. The ledger rejects
anything else.

A long run settles millions of groups. Those that were settled before the oldest group in flight are therefore
moved to a file, one a line, which nobody reads in order to train.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any


class GroupOutcome(StrEnum):
    """The outcome of a group; all but the first are reasons why it was dropped."""

    TRAINED = "trained"
    STALE = "stale"
    """Its oldest turn was written by a version too far behind."""
    NO_SPREAD = "no_spread"
    """All its returns are equal, so it teaches nothing."""
    NON_FINITE = "non_finite"
    """The step that it was part of had no finite loss or gradient."""
    FAILED = "failed"
    """It failed again and again, and the cause may be its question."""
    UNANSWERED = "unanswered"
    """Asked for again and again, while others were answered."""
    RUN_ENDED = "run_ended"
    """Still in flight when the run ended."""


class Ledger:
    """Every request id of a run: in flight, or settled at a step. Ids are asked for in ascending order."""

    def __init__(self) -> None:
        self._in_flight: dict[str, None] = {}
        self._settled: dict[str, tuple[GroupOutcome, int]] = {}
        self._counts: Counter[str] = Counter()  # of the settled ones, archived or not
        self._archived_to = ""  # this id and all smaller ones are archived
        self._archive_bytes = 0

    @property
    def in_flight(self) -> list[str]:
        """Ids asked for and not settled, oldest first."""
        return list(self._in_flight)

    def ask(self, request_id: str) -> None:
        """Record that a group is requested.

        Raises:
            ValueError: it was asked for before.
        """
        if request_id in self._in_flight or self.is_settled(request_id):
            raise ValueError(f"{request_id} was asked for before")
        self._in_flight[request_id] = None

    def settle(self, request_id: str, outcome: GroupOutcome, step: int) -> None:
        """Record the outcome of a group in flight.

        Args:
            step: the optimiser step that it was trained in, or dropped before.

        Raises:
            ValueError: it is not in flight.
        """
        if request_id not in self._in_flight:
            raise ValueError(f"{request_id} is not in flight")
        del self._in_flight[request_id]
        self._settled[request_id] = (outcome, step)
        self._counts[outcome.value] += 1

    def is_settled(self, request_id: str) -> bool:
        return request_id <= self._archived_to or request_id in self._settled

    def outcome(self, request_id: str) -> GroupOutcome | None:
        """The outcome of a group; None while it is in flight, once it is archived, or if it is unknown."""
        entry = self._settled.get(request_id)
        return None if entry is None else entry[0]

    def archive(self, path: Path) -> None:
        """Move the groups that were settled before the oldest one in flight to the end of a file.

        The file may be longer than this ledger knows, because a restore has undone what was archived since.
        That part is replaced.
        """
        oldest = min(self._in_flight, default=None)
        done = sorted(key for key in self._settled if oldest is None or key < oldest)
        if not done:
            return
        lines = "".join(json.dumps([key, *self._settled[key]]) + "\n" for key in done).encode()
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(self._archive_bytes)
            file.seek(self._archive_bytes)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self._archive_bytes += len(lines)
        self._archived_to = done[-1]
        for key in done:
            del self._settled[key]

    def counts(self) -> dict[str, int]:
        """Number of groups by outcome."""
        return dict(self._counts)

    def to_json(self) -> dict[str, Any]:
        return {
            "in_flight": self.in_flight,
            "settled": {key: [outcome.value, step] for key, (outcome, step) in self._settled.items()},
            "counts": self.counts(),
            "archived_to": self._archived_to,
            "archive_bytes": self._archive_bytes,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Ledger:
        ledger = cls()
        ledger._in_flight = dict.fromkeys(values["in_flight"])
        ledger._settled = {
            key: (GroupOutcome(outcome), step) for key, (outcome, step) in values["settled"].items()
        }
        # Checkpoints of earlier releases hold all settled groups.
        counts = values.get("counts") or Counter(outcome.value for outcome, _ in ledger._settled.values())
        ledger._counts.update(counts)
        ledger._archived_to = values.get("archived_to", "")
        ledger._archive_bytes = values.get("archive_bytes", 0)
        return ledger


_UNPUBLISHED = ""  # in place of a version's id


class History:
    """The versions that led to the current weights, each with its generation.

    Weights that change get the next generation. Weights that are published again after a
    restore have another version id and the same generation.

    Attributes:
        current: the newest generation; 0 before the first.
    """

    def __init__(self, generations: Mapping[str, int] | None = None) -> None:
        self._generations = dict(generations or {})
        self.current = max(self._generations.values(), default=0)

    def advance(self, version: str) -> None:
        """`version` holds weights that have changed."""
        self.current += 1
        self._generations[version] = self.current

    def republish(self, version: str) -> None:
        """`version` holds the newest generation's weights, unchanged."""
        self._generations[version] = self.current

    def advance_unpublished(self) -> None:
        """The weights have changed, and no version holds them yet."""
        self.advance(_UNPUBLISHED)

    def staleness(self, versions: Iterable[str]) -> int | None:
        """Generations from the oldest of `versions` to now; None if a restore has undone one of them."""
        generations = [self._generations.get(version) for version in versions]
        known = [generation for generation in generations if generation is not None]
        if len(known) < len(generations):
            return None
        return self.current - min(known, default=self.current)

    def to_json(self) -> dict[str, int]:
        return dict(self._generations)

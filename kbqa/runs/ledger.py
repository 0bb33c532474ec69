"""The outcome of every requested group, and the versions that led to the current weights.

The invariant of training: in the history that leads to the current weights, every requested
group occurs exactly once, either trained on, or dropped with a reason. The ledger rejects
anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
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
    """Every request id of a run: in flight, or settled at a step."""

    def __init__(self) -> None:
        self._in_flight: dict[str, None] = {}
        self._settled: dict[str, tuple[GroupOutcome, int]] = {}
        self._counts: Counter[str] = Counter()  # of the settled ones; counting anew takes ever longer

    @property
    def in_flight(self) -> list[str]:
        """Ids asked for and not settled, oldest first."""
        return list(self._in_flight)

    def ask(self, request_id: str) -> None:
        """Record that a group is requested.

        Raises:
            ValueError: it was asked for before.
        """
        if request_id in self._in_flight or request_id in self._settled:
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

    def outcome(self, request_id: str) -> GroupOutcome | None:
        """The outcome of a group; None while it is in flight, or if it was never requested."""
        entry = self._settled.get(request_id)
        return None if entry is None else entry[0]

    def settled(self) -> list[str]:
        return list(self._settled)

    def counts(self) -> dict[str, int]:
        """Number of groups by outcome."""
        return dict(self._counts)

    def to_json(self) -> dict[str, Any]:
        return {
            "in_flight": self.in_flight,
            "settled": {key: [outcome.value, step] for key, (outcome, step) in self._settled.items()},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Ledger:
        ledger = cls()
        ledger._in_flight = dict.fromkeys(values["in_flight"])
        ledger._settled = {
            key: (GroupOutcome(outcome), step) for key, (outcome, step) in values["settled"].items()
        }
        ledger._counts.update(outcome.value for outcome, _ in ledger._settled.values())
        return ledger


_UNPUBLISHED = ""  # in place of a version's id


class History:
    """The versions that led to the current weights, each with its generation.

    Weights that change get the next generation. Weights that are published again after a
    restore have another version id and the same generation.
    """

    def __init__(self, generations: Mapping[str, int] | None = None) -> None:
        self._generations = dict(generations or {})

    @property
    def current(self) -> int:
        """The newest generation; 0 before the first."""
        return max(self._generations.values(), default=0)

    def advance(self, version: str) -> None:
        """`version` holds weights that have changed."""
        self._generations[version] = self.current + 1

    def republish(self, version: str) -> None:
        """`version` holds the newest generation's weights, unchanged."""
        self._generations[version] = self.current

    def advance_unpublished(self) -> None:
        """The weights have changed, and no version holds them yet."""
        self._generations[_UNPUBLISHED] = self.current + 1

    def staleness(self, versions: Iterable[str]) -> int | None:
        """Generations from the oldest of `versions` to now; None if a restore has undone one of them."""
        generations = [self._generations.get(version) for version in versions]
        known = [generation for generation in generations if generation is not None]
        if len(known) < len(generations):
            return None
        return self.current - min(known, default=self.current)

    def to_json(self) -> dict[str, int]:
        return dict(self._generations)

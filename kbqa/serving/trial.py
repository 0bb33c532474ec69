"""The trial of a newly promoted version: whether it answers about as often as the one before it did."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a question ended, as far as its policy is concerned."""

    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    FAILED = "failed"
    """The policy, or its engine, raised an error."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a version has failed its trial.

    Attributes:
        questions: questions that are counted of either version; with fewer, there is no verdict.
        errors: by how much the share of failed questions may exceed the earlier version's.
        fall: by how much the share of answered questions may be below the earlier version's.
    """

    questions: int = 50
    errors: float = 0.1
    fall: float = 0.3


class Trial:
    """Compares the latest questions of a version with those of its predecessor; safe for many threads."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lock = threading.Lock()
        self._latest: dict[str, deque[Outcome]] = {}
        self._pair: tuple[str, str] | None = None

    def begin(self, version: str, before: str) -> None:
        """`version` takes over from `before`."""
        with self._lock:
            self._pair = version, before
            self._latest = {before: self._latest.get(before, self._none()), version: self._none()}

    def count(self, version: str, outcome: Outcome) -> None:
        with self._lock:
            self._latest.setdefault(version, self._none()).append(outcome)

    def verdict(self) -> str | None:
        """Why the newer version has failed; None if it has not, or too few questions were asked."""
        with self._lock:
            if self._pair is None:
                return None
            now, before = (self._latest.get(version, self._none()) for version in self._pair)
            if min(len(now), len(before)) < self._bounds.questions:
                return None
            for outcome, limit, sign in (
                (Outcome.FAILED, self._bounds.errors, 1),
                (Outcome.ANSWERED, self._bounds.fall, -1),
            ):
                share, earlier = (questions.count(outcome) / len(questions) for questions in (now, before))
                if sign * (share - earlier) > limit:
                    return (
                        f"{share:.0%} of its latest {len(now)} questions {_WORDS[outcome]}, "
                        f"{earlier:.0%} with {self._pair[1]}"
                    )
            return None

    def _none(self) -> deque[Outcome]:
        return deque(maxlen=self._bounds.questions)


_WORDS = {Outcome.FAILED: "failed", Outcome.ANSWERED: "were answered"}

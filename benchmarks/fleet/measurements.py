"""What a fleet is asked to do, and what is measured meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Step:
    """A load that is offered for a while.

    Attributes:
        turn_s: mean time of a worker's completion while a run trains; None for no training.
        questions: per second, to all gateways.
        at_a_time: questions in progress at one gateway alone, in place of `questions`.
        answer_s: mean time of a gateway's completion.
        booked: questions per second of which the gateways' Redis alone hears, in their place.
        replies: per second, copies of a worker's, which the trainer's intake takes.
    """

    seconds: float
    turn_s: float | None = None
    questions: float = 0.0
    at_a_time: int = 0
    answer_s: float = 0.25
    booked: float = 0.0
    replies: float = 0.0

    @property
    def is_partial(self) -> bool:
        """Whether one component alone gets its load."""
        return bool(self.booked or self.replies)


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet and its steps.

    Attributes:
        concurrency: requests that a worker plays at a time.
        in_flight: requests of the run that are out at a time.
        per_step: groups of an optimiser step, each with a new version.
    """

    workers: int
    gateways: int
    concurrency: int
    in_flight: int
    per_step: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Totals:
    """What was spent and done, until a moment or between two.

    Attributes:
        seconds: by the monotonic clock.
        cpu_s: processor time by kind of member: each Redis, workers, gateways, trainer, training.
        commands, network: by Redis; network in bytes, both ways.
        operations: of the policy store.
        count_bytes: memory of Redis for the counts of requests and questions.
    """

    seconds: float
    cpu_s: Mapping[str, float]
    commands: Mapping[str, int]
    network: Mapping[str, int]
    groups: int
    versions: int
    operations: Mapping[str, int]
    count_bytes: int

    def __sub__(self, other: Totals) -> Totals:
        return Totals(
            self.seconds - other.seconds,
            {kind: spent - other.cpu_s[kind] for kind, spent in self.cpu_s.items()},
            _less(self.commands, other.commands),
            _less(self.network, other.network),
            self.groups - other.groups,
            self.versions - other.versions,
            _less(self.operations, other.operations),
            self.count_bytes - other.count_bytes,
        )


def _less(counts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: count - others[name] for name, count in counts.items()}


@dataclass
class Peaks:
    """The highest values that were seen.

    Attributes:
        clients: connections by Redis.
        files: open files of the trainer.
        queued: messages by queue.
        message: memory of a message by queue, in bytes.
    """

    clients: Counter[str] = field(default_factory=Counter)
    files: int = 0
    queued: Counter[str] = field(default_factory=Counter)
    message: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Measured:
    """What a step cost, and what came of it.

    Attributes:
        ends: questions by how they ended; see `Callers`.
    """

    step: Step
    totals: Totals
    peaks: Peaks
    ends: Mapping[str, int]

    @property
    def questions(self) -> int:
        return sum(self.ends.values())


@dataclass(frozen=True)
class Outcome:
    """A simulated fleet.

    Attributes:
        reply_bytes: mean size of a reply on the trainer's disk.
    """

    plan: Plan
    steps: tuple[Measured, ...]
    reply_bytes: float

    @property
    def whole(self) -> list[Measured]:
        """The steps that the whole fleet took part in."""
        return [step for step in self.steps if not step.step.is_partial]

"""What a long run may not do: grow. Samples of processes and of Redis, and a verdict over them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psutil
import redis

_LEAST = 60  # samples; with fewer, a start looks like growth

Sample = tuple[tuple[str, str], float]
"""Of what and which quantity; its value."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How much a quantity may rise from the second third of a soak to its end.

    Attributes:
        absolute: in its own unit.
        relative: of its level in the second third.
    """

    unit: str
    absolute: float
    relative: float

    def exceeded(self, before: float, after: float) -> bool:
        return after - before > self.absolute + self.relative * before


BOUNDS = {
    "resident": Bound("MB", 16, 0.05),
    "files": Bound("open files", 4, 0.0),
    "keys": Bound("keys", 4, 0.0),
    "messages": Bound("messages", 64, 0.0),  # as many as may wait anyhow
    "disk": Bound("MB", 32, 0.1),
    "adapters": Bound("adapters", 1, 0.0),
}


def of_process(name: str, process: psutil.Process) -> Iterator[Sample]:
    """Resident memory and open files."""
    yield (name, "resident"), process.memory_info().rss / 2**20
    yield (name, "files"), process.num_fds()


def of_redis(url: str) -> Iterator[Sample]:
    """Keys, and messages in all queues."""
    with redis.Redis.from_url(url) as client:
        yield ("redis", "keys"), client.dbsize()
        yield ("redis", "messages"), sum(_length(client, key) for key in client.keys("*"))


def _length(client: redis.Redis, key: bytes) -> int:
    match client.type(key):
        case b"list":
            return int(client.llen(key))
        case b"hash":
            return int(client.hlen(key))
        case _:
            return 0


def verdict(samples: Mapping[tuple[str, str], Sequence[float]]) -> tuple[list[str], list[str]]:
    """A line for each quantity, and which ones grow: the medians of the second and the last third differ."""
    lines, growing = [], []
    for (name, kind), values in sorted(samples.items()):
        third = max(len(values) // 3, 1)
        before, after = (
            statistics.median(values[third : 2 * third] or values),
            statistics.median(values[-third:]),
        )
        bound = BOUNDS[kind]
        if len(values) >= _LEAST and bound.exceeded(before, after):
            growing.append(f"{name} {kind}")
        lines.append(
            f"{name:<18} {values[0]:8.1f} at first, {before:8.1f} in the second third, "
            f"{after:8.1f} in the last, {max(values):8.1f} at most {bound.unit}"
        )
    return lines, growing

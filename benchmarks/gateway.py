"""Streams of the gateway, many at a time: what it adds to the time of policy and graph.

A stream takes four turns with an event each 250 ms. The gateway's own overhead is the time from
the moment at which it is given a turn, or a result, to the moment at which a client beside it
reads the event; likewise from the question to its first event, and from the last turn to the
document. One asking client's own share is in it.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load import resident_bytes, serving
from benchmarks.scripted_gateway import EVENTS

_STREAMS, _SECONDS, _PAUSE_S = 200, 300.0, 0.25
_EXCESS = 100  # streams at once beyond what the gateway takes
_AT = re.compile(r"at (\d+\.\d+)")


@dataclass
class Outcome:
    """What became of streams.

    Attributes:
        overheads_ms: of each event.
        ends: how many streams ended how: `done`, `error`, an HTTP status, or an exception's name.
        resident: (seconds since the beginning, bytes) of the gateway.
    """

    overheads_ms: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    resident: list[tuple[float, int]] = field(default_factory=list)

    def percentile_ms(self, percent: int) -> float:
        return statistics.quantiles(self.overheads_ms, n=100)[percent - 1]


def measure() -> list[str]:
    """Lines of a report."""
    outcome, beyond = load(_STREAMS, _SECONDS, _PAUSE_S)
    first, last = _settled(outcome), outcome.resident[-1][1]
    return [
        f"gateway: {_STREAMS} streams at a time for {_SECONDS:g} s, an event each {_PAUSE_S * 1000:g} ms: "
        f"{outcome.ends['done']:,} streams, {len(outcome.overheads_ms):,} events timed, "
        f"{_others(outcome.ends, 'done')}",
        f"  overhead of an event: median {outcome.percentile_ms(50):.1f} ms, "
        f"p99 {outcome.percentile_ms(99):.1f} ms, most {max(outcome.overheads_ms):.0f} ms "
        "(target: p99 under 25 ms)",
        f"  memory: {first / 2**20:.0f} MiB after a fifth of the time, {last / 2**20:.0f} MiB at the end",
        f"  {_EXCESS} beyond its places: {beyond.ends['done']} answered, {beyond.ends['429']} refused with "
        f"429, {_others(beyond.ends, 'done', '429')}",
    ]


def load(streams: int, seconds: float, pause_s: float, excess: int = _EXCESS) -> tuple[Outcome, Outcome]:
    """Keep a gateway busy with as many streams as it takes; then with more than that, once."""
    command = ["-m", "benchmarks.scripted_gateway", "--streams", f"{streams}", "--pause-s", f"{pause_s}"]
    with serving(command, "/readyz") as (url, pid):
        busy, beyond = Outcome(), Outcome()
        asyncio.run(_keep_busy(url, pid, streams, seconds, pause_s, busy))
        asyncio.run(_all_at_once(url, streams + excess, beyond))
        return busy, beyond


async def _keep_busy(
    url: str, pid: int, streams: int, seconds: float, pause_s: float, outcome: Outcome
) -> None:
    began = time.monotonic()

    async def client(number: int) -> None:
        # Spread over a stream's time, as independent clients are.
        await asyncio.sleep(number / streams * EVENTS * pause_s)
        while time.monotonic() - began < seconds:
            await _ask(url, outcome)

    async def watch() -> None:
        while True:
            outcome.resident.append((time.monotonic() - began, resident_bytes(pid)))
            await asyncio.sleep(max(seconds / 60, 0.2))

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*map(client, range(streams)))
    watching.cancel()


async def _all_at_once(url: str, streams: int, outcome: Outcome) -> None:
    await asyncio.gather(*(_ask(url, outcome) for _ in range(streams)))


async def _ask(url: str, outcome: Outcome) -> None:
    asked = time.monotonic()
    try:
        async for event in _events(url):
            now = time.monotonic()
            if (given := _given(event, asked)) is not None:
                outcome.overheads_ms.append((now - given) * 1000)
            if event["event"] in ("done", "error", "refused"):
                outcome.ends[event.get("status") or event["event"]] += 1
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        outcome.ends[type(error).__name__] += 1


def _given(event: dict[str, Any], asked: float) -> float | None:
    """When the gateway could first have told an event; None where nothing says so."""
    match event["event"]:
        case "linked":
            return asked
        case "thought":
            text = event["thought"]
        case "observation":
            text = event["observation"]
        case "done":
            text = event["document"]["runs"][0]["trajectory"][-1]["thought"]
        case _:
            return None
    return float(_AT.findall(text)[-1])


async def _events(url: str) -> AsyncIterator[dict[str, Any]]:
    """One question's events, over a connection of its own; `refused` with its status in place of a stream."""
    parts = urlsplit(url)
    body = json.dumps({"question": "Topic?", "kg": "graph", "stream": True}).encode()
    head = f"POST /v1/answer HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
    try:
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status = (await reader.readline()).split()[1].decode()
        if status != "200":
            yield {"event": "refused", "status": status}
            return
        # Lines of chunked transfer lie between those of events, and begin otherwise.
        while line := await reader.readline():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))
    finally:
        writer.close()


def _settled(outcome: Outcome) -> int:
    """Memory after the first fifth of the time."""
    last = outcome.resident[-1][0]
    return next(size for at, size in outcome.resident if at >= last / 5)


def _others(ends: Counter[str], *expected: str) -> str:
    others: Iterable[str] = (f"{count} {end}" for end, count in ends.items() if end not in expected)
    return ", ".join(others) or "nothing else"

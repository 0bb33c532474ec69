"""What each key has cost: questions, calls of the policy, tokens, actions on the graph, and seconds.

Each gateway adds up the current day in memory, and saves it every few seconds as a file of its own,
`HOME/gateway/usage/DAY.GATEWAY.json`. A killed gateway loses what came after its last save.

    by_key = read_usage(usage_path(home), since=date(2026, 11, 1))
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from kbqa.client.models import Usage
from kbqa.policy_store.durable import write_file
from kbqa.telemetry.metrics import Metrics
from services.gateway.access.control import Caller

logger = logging.getLogger(__name__)

_SAVE_S = 5.0


class KeyUsage(BaseModel):
    """What a key has cost; an answer from the cache counts as a question and costs nothing else."""

    questions: int = 0
    llm_calls: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    kg_calls: int = 0
    seconds: float = 0.0

    def add(self, other: KeyUsage) -> None:
        for name, value in other:
            setattr(self, name, getattr(self, name) + value)


class _Day(BaseModel):
    day: date
    keys: dict[str, KeyUsage]


def usage_path(home: Path) -> Path:
    """Default directory of the usage of keys."""
    return home / "gateway" / "usage"


def read_usage(directory: Path, since: date | None = None) -> dict[str, KeyUsage]:
    """What each key has cost, by its id, which is empty for callers without one.

    Args:
        since: first day that counts, in UTC; None for all.
    """
    total = defaultdict[str, KeyUsage](KeyUsage)
    for path in sorted(directory.glob("*.json")):
        try:
            found = _Day.model_validate_json(path.read_bytes())
        except ValidationError:
            logger.warning("a file is not the usage of keys", extra={"path": str(path)})
            continue
        if since is None or found.day >= since:
            for key, used in found.keys.items():
                total[key].add(used)
    return dict(total)


class UsageLedger:
    """Adds up what keys cost; for one event loop.

    Args:
        today: the current day in UTC.
    """

    def __init__(
        self, directory: Path, metrics: Metrics, today: Callable[[], date] = lambda: datetime.now(UTC).date()
    ) -> None:
        self._directory, self._today = directory, today
        self._writer = secrets.token_hex(4)
        self._days: dict[date, dict[str, KeyUsage]] = {}
        self._saving: asyncio.Task[None] | None = None
        self._questions = metrics.counter("kbqa_gateway_key_questions_total")
        self._calls = metrics.counter("kbqa_gateway_key_calls_total")
        self._tokens = metrics.counter("kbqa_gateway_key_tokens_total")
        self._seconds = metrics.counter("kbqa_gateway_key_seconds_total")

    def start(self) -> None:
        self._saving = asyncio.create_task(self._keep_saving())

    async def close(self) -> None:
        """Save what has not been saved yet."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)
        self._save()

    def count(self, caller: Caller, usage: Usage) -> None:
        """Add what an answer has cost."""
        used = KeyUsage(
            questions=1,
            llm_calls=usage.llm_calls,
            prompt_tokens=usage.prompt_tokens,
            generated_tokens=usage.generated_tokens,
            kg_calls=usage.kg_calls,
            seconds=usage.elapsed_ms / 1000,
        )
        self._days.setdefault(self._today(), {}).setdefault(caller.owner, KeyUsage()).add(used)
        self._questions.labels(caller.name).inc()
        self._calls.labels(caller.name).inc(used.llm_calls)
        self._tokens.labels(caller.name, "prompt").inc(used.prompt_tokens)
        self._tokens.labels(caller.name, "generated").inc(used.generated_tokens)
        self._seconds.labels(caller.name).inc(used.seconds)

    async def _keep_saving(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_S)
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        for day in [*self._days]:
            text = _Day(day=day, keys=self._days[day]).model_dump_json(indent=1)
            try:
                self._directory.mkdir(parents=True, exist_ok=True)
                write_file(self._directory / f"{day}.{self._writer}.json", text.encode())
            except OSError as error:
                logger.error("the usage of keys cannot be saved", extra={"error": str(error)})
                return
            if day < self._today():
                del self._days[day]

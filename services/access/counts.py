"""Rate limits: counts of each caller's requests in a moving window, in Redis or in this process.

A limit of at most `EXACT` requests is counted exactly: the times of all of them are stored. For a larger one,
two numbers are stored, of this window and of the one before, which is taken to have been even. Otherwise a
quota of a million questions a day would take 20 MB for each key, in a Redis that also holds the queues.

Replicas of a service that share a Redis count together. While Redis does not answer, each replica either
counts alone, so that each replica grants a caller the full limit, or refuses callers that have a limit.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Literal

from limits import RateLimitItem, parse_many
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import MovingWindowRateLimiter, RateLimiter, SlidingWindowCounterRateLimiter
from prometheus_client import Counter
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.access.errors import CountsUnavailableError
from services.redis_servers import RedisServers, explain

logger = logging.getLogger(__name__)

# Pause after a failure of Redis, so that not every request waits for it.
_PAUSE_S = 5.0

EXACT = 1000
"""Largest limit that is counted exactly."""

Purpose = Literal["requests", "questions"]


class Counts:
    """Counts requests and questions; for one event loop.

    Args:
        redis_url: Redis that holds the counts; None counts in this process alone.
        failures: counts the failures of Redis, by part of the service.
        without_redis: "local" counts here while Redis does not answer, "refuse" refuses instead.
        timeout_s: timeout for Redis, in seconds.

    Raises:
        ConfigurationError: `redis_url` is not a Redis URL.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        failures: Counter | None = None,
        *,
        without_redis: Literal["local", "refuse"] = "local",
        timeout_s: float = 0.5,
    ) -> None:
        self._client: Redis | None = None
        self._shared: _Windows | None = None
        if redis_url is not None:
            self._client = RedisServers.of(redis_url, "KBQA_REDIS_URL").async_client(timeout_s=timeout_s)
            self._shared = _shared(self._client)
        self._own = _Windows(MemoryStorage())
        self._refuse, self._timeout_s = without_redis == "refuse", timeout_s
        self._paused_until = 0.0
        self._failures = failures

    async def take(self, limit: str | None, purpose: Purpose, caller: str) -> float | None:
        """Count one more request or question, unless it exceeds the limit.

        Args:
            limit: one or more limits, such as `60/minute;1000/day`; None for no limit.

        Returns:
            None if it was counted, else the seconds after which to try again.

        Raises:
            CountsUnavailableError: Redis does not answer, and `without_redis` is "refuse".
        """
        if limit is None:
            return None
        if self._shared is not None and time.monotonic() >= self._paused_until:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await _take(self._shared, limit, purpose, caller)
            except (RedisError, OSError, TimeoutError) as error:
                if self._failures is not None:
                    self._failures.labels("counts").inc()
                self._paused_until = time.monotonic() + _PAUSE_S
                logger.error("Redis cannot count requests", extra={"error": explain(error)})
        if self._shared is not None and self._refuse:
            raise CountsUnavailableError
        return await _take(self._own, limit, purpose, caller)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class _Windows:
    """Counts in one storage, each limit in its way."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._exact = MovingWindowRateLimiter(storage)
        self._even = SlidingWindowCounterRateLimiter(storage)

    def of(self, item: RateLimitItem) -> RateLimiter:
        return self._exact if item.amount <= EXACT else self._even


async def _take(windows: _Windows, limit: str, purpose: Purpose, caller: str) -> float | None:
    items = parse_many(limit)
    # Test the others before counting: a request that one limit refuses must not count towards another.
    for item in items[1:]:
        if not await windows.of(item).test(item, purpose, caller):
            return await _wait_s(windows, item, purpose, caller)
    for item in items:
        if not await windows.of(item).hit(item, purpose, caller):
            return await _wait_s(windows, item, purpose, caller)
    return None


async def _wait_s(windows: _Windows, item: RateLimitItem, *who: str) -> float:
    stats = await windows.of(item).get_window_stats(item, *who)
    return max(1.0, math.ceil(stats.reset_time - time.time()))


def _shared(client: Redis) -> _Windows:
    storage = RedisStorage(
        "async+redis://",  # where Redis is, its pool of connections says
        implementation="redispy",
        key_prefix="kbqa:counts",
        connection_pool=client.connection_pool,  # type: ignore[arg-type]  # passed on to redis unchanged
    )
    return _Windows(storage)

"""Key-value stores with expiry: in this process, or in Redis and shared by all gateways."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Protocol, cast

from cachetools import TLRUCache
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from kbqa.errors import ConfigurationError
from kbqa.telemetry import Metrics
from services.gateway.errors import ShelfUnavailableError

_LARGEST = 4 * 2**20  # bytes of a value


class AnswerShelf(Protocol):
    """A store of values by key, each with a time to live; the number of values is limited.

    Raises:
        ShelfUnavailableError: any method, if the store is in Redis and Redis does not answer.
    """

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """Store a value, replacing an earlier one. A very large value is not stored."""
        ...

    async def claim(self, key: str, value: bytes, ttl_s: float) -> bool:
        """Store a value unless there is one; returns whether it was stored."""
        ...

    async def drop(self, key: str) -> None: ...

    async def close(self) -> None: ...


class MemoryShelf:
    """A store in this process.

    Args:
        most: maximum number of values.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._values: TLRUCache[str, tuple[float, bytes]] = TLRUCache(most, _expires_at, clock)

    async def get(self, key: str) -> bytes | None:
        _, value = self._values.get(key, (0.0, None))
        return value

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        if len(value) <= _LARGEST:
            self._values[key] = ttl_s, value

    async def claim(self, key: str, value: bytes, ttl_s: float) -> bool:
        if await self.get(key) is not None:
            return False
        await self.put(key, value, ttl_s)
        return True

    async def drop(self, key: str) -> None:
        self._values.pop(key, None)

    async def close(self) -> None:
        self._values.clear()


def _expires_at(_: str, value: tuple[float, bytes], now: float) -> float:
    return now + value[0]


class RedisShelf:
    """A store in Redis: compressed values under names that begin with `prefix`.

    Args:
        most: maximum number of values that `put` keeps, so that they leave room for queues in the same Redis.
        timeout_s: timeout for Redis, in seconds.

    Raises:
        ConfigurationError: `url` is not a Redis URL.
    """

    def __init__(self, url: str, prefix: str, most: int, metrics: Metrics, *, timeout_s: float) -> None:
        self._prefix, self._most = prefix, most
        self._index = f"{prefix}:newest"
        self._failures = metrics.counter("kbqa_gateway_redis_failures_total").labels("answers")
        # A pooled connection may belong to a Redis that was replaced: retry once, immediately.
        retry = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
        try:
            self._redis = Redis.from_url(
                url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=retry
            )
        except ValueError as error:
            raise ConfigurationError(f"KBQA_REDIS_URL: {error}") from error

    async def get(self, key: str) -> bytes | None:
        try:
            value = cast("bytes | None", await self._redis.get(self._name(key)))
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error
        return None if value is None else zlib.decompress(value)

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        if len(value) > _LARGEST:
            return
        name = self._name(key)
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(name, zlib.compress(value), px=int(ttl_s * 1000))
                pipe.zadd(self._index, {name: time.time()})
                pipe.zcard(self._index)
                *_, count = await pipe.execute()
            if count > self._most:
                oldest = await self._redis.zpopmin(self._index, count - self._most)
                await self._redis.delete(*(name for name, _ in cast("list[tuple[bytes, float]]", oldest)))
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

    async def claim(self, key: str, value: bytes, ttl_s: float) -> bool:
        try:
            taken = await self._redis.set(
                self._name(key), zlib.compress(value), nx=True, px=int(ttl_s * 1000)
            )
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error
        return bool(taken)

    async def drop(self, key: str) -> None:
        try:
            await self._redis.delete(self._name(key))
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

    async def close(self) -> None:
        await self._redis.aclose()

    def _name(self, key: str) -> str:
        return f"{self._prefix}:{key}"

    def _unavailable(self, error: Exception) -> ShelfUnavailableError:
        self._failures.inc()
        return ShelfUnavailableError(str(error) or type(error).__name__)

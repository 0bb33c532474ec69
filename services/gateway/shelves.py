"""Key-value stores with expiry: in this process, or in Redis and shared by all gateways."""

from __future__ import annotations

import math
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from cachetools import TLRUCache
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from kbqa.errors import ConfigurationError
from kbqa.telemetry.metrics import Metrics
from services.gateway.errors import ShelfUnavailableError

_LARGEST = 4 * 2**20  # bytes of a value
_STILL = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
_RENEW = _STILL + "return redis.call('pexpire', KEYS[1], ARGV[2])"
_RELEASE = _STILL + "return redis.call('del', KEYS[1])"

_Values = TLRUCache[str, tuple[float, bytes]]


class AnswerShelf(Protocol):
    """A store of values by key, each with a time to live; the number of an owner's values is limited.

    A claim is a small value that holds a place while its value is being made. It is never dropped to make
    room, and only who made it renews or releases it.

    Raises:
        ShelfUnavailableError: any method, if the store is in Redis and Redis does not answer.
    """

    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        """Store a value, replacing an earlier one or a claim. A very large value is not stored.

        Args:
            owner: whose oldest values make room for this one.
        """
        ...

    async def claim(self, key: str, value: bytes, ttl_s: float) -> bool:
        """Store a claim unless there is a value or a claim; returns whether it was stored."""
        ...

    async def renew(self, key: str, value: bytes, ttl_s: float) -> bool:
        """Let a claim live on, if it is still this one; returns whether it is."""
        ...

    async def release(self, key: str, value: bytes) -> None:
        """Remove a claim, if it is still this one."""
        ...

    async def drop(self, key: str) -> None: ...

    async def close(self) -> None: ...


class MemoryShelf:
    """A store in this process.

    Args:
        most: maximum number of values of an owner.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._values: defaultdict[str, _Values] = defaultdict(lambda: TLRUCache(most, _expires_at, clock))
        # As many as requests that are being answered.
        self._claims: _Values = TLRUCache(math.inf, _expires_at, clock)

    async def get(self, key: str) -> bytes | None:
        shelves = (self._claims, *self._values.values())
        return next((shelf[key][1] for shelf in shelves if key in shelf), None)

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        if len(value) <= _LARGEST:
            self._claims.pop(key, None)
            self._values[owner][key] = ttl_s, value

    async def claim(self, key: str, value: bytes, ttl_s: float) -> bool:
        if await self.get(key) is not None:
            return False
        self._claims[key] = ttl_s, value
        return True

    async def renew(self, key: str, value: bytes, ttl_s: float) -> bool:
        if self._claims.get(key, (0.0, None))[1] != value:
            return False
        self._claims[key] = ttl_s, value
        return True

    async def release(self, key: str, value: bytes) -> None:
        if self._claims.get(key, (0.0, None))[1] == value:
            del self._claims[key]

    async def drop(self, key: str) -> None:
        self._claims.pop(key, None)
        for values in self._values.values():
            values.pop(key, None)

    async def close(self) -> None:
        self._claims.clear()
        self._values.clear()


def _expires_at(_: str, value: tuple[float, bytes], now: float) -> float:
    return now + value[0]


class RedisShelf:
    """A store in Redis: compressed values under names that begin with `prefix`.

    Args:
        most: maximum number of an owner's values that `put` keeps, so that they leave room for queues in the
            same Redis.
        timeout_s: timeout for Redis, in seconds.

    Raises:
        ConfigurationError: `url` is not a Redis URL.
    """

    def __init__(self, url: str, prefix: str, most: int, metrics: Metrics, *, timeout_s: float) -> None:
        self._prefix, self._most = prefix, most
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

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        if len(value) > _LARGEST:
            return
        name, index, ttl_ms = self._name(key), f"{self._prefix}:newest:{owner}", int(ttl_s * 1000)
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(name, zlib.compress(value), px=ttl_ms)
                pipe.zadd(index, {name: time.time()})
                pipe.pexpire(index, ttl_ms)  # nothing that it lists lives longer
                pipe.zcard(index)
                *_, count = await pipe.execute()
            if count > self._most:
                oldest = await self._redis.zpopmin(index, count - self._most)
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

    async def renew(self, key: str, value: bytes, ttl_s: float) -> bool:
        return bool(await self._if_still(_RENEW, key, value, int(ttl_s * 1000)))

    async def release(self, key: str, value: bytes) -> None:
        await self._if_still(_RELEASE, key, value)

    async def _if_still(self, script: str, key: str, value: bytes, *arguments: int) -> object:
        """Run a script that changes a key if its value is still `value`, in one step."""
        try:
            running = self._redis.eval(script, 1, self._name(key), zlib.compress(value), *arguments)
            return await cast("Awaitable[object]", running)
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

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

"""Two-tier cache of answers: in memory, then in Redis.

A key contains the graph's version and everything else that an answer depends on, so entries never become
wrong. Redis may be slow, full, unreachable or contain other data: any failure of Redis is treated as a miss,
and no look-up takes longer than its timeout.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from cachetools import TTLCache

from kbqa.telemetry.metrics import Metrics
from services.redis_servers import RedisServers, explain

logger = logging.getLogger(__name__)

# Seconds without requests to Redis after a failure.
_PAUSE_S = 5.0
_CHECKSUM_BYTES = 16
# Memory of an entry in addition to its value: the key and the objects around both.
_ENTRY_BYTES = 400

T = TypeVar("T")


def cache_key(kg: str, version: str, what: str, *parts: object) -> str:
    """The key of an answer that depends only on `parts` (JSON) and the graph's version."""
    digest = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=24).hexdigest()
    return f"kbqa:{what}:{kg}:{version}:{digest}"


class Cache:
    """Two-tier cache of bytes. `get` and `put` block until Redis answers or its timeout has passed.

    Redis is used only between `open` and `close`.

    Args:
        redis_url: Redis of the second tier; None for no second tier.
        memory_bytes: size of the first tier.
        max_value_bytes: larger values are not cached.
        ttl_s: seconds for which a value is cached.
        timeout_s: timeout for Redis, in seconds.

    Raises:
        ConfigurationError: `redis_url` is not a Redis URL.
    """

    def __init__(
        self,
        redis_url: str | None,
        metrics: Metrics,
        *,
        memory_bytes: int,
        max_value_bytes: int,
        ttl_s: int,
        timeout_s: float,
    ) -> None:
        self._memory = _Memory(memory_bytes, ttl_s)
        self._redis = _RedisTier(redis_url, ttl_s, timeout_s) if redis_url is not None else None
        self._max_value_bytes = max_value_bytes
        self._lookups = metrics.counter("kbqa_kg_cache_requests_total")
        self._writes = metrics.counter("kbqa_kg_cache_writes_total")

    def open(self) -> None:
        if self._redis is not None:
            self._redis.open()

    def recall(self, key: str, action: str) -> bytes | None:
        """A value of the first tier; never blocks. A miss is counted by the `get` that follows.

        Args:
            action: label of the look-up in the metrics.
        """
        value = self._memory.get(key)
        if value is not None:
            self._lookups.labels("memory", action, "hit").inc()
        return value

    def get(self, key: str, action: str) -> bytes | None:
        """The value, or None."""
        value = self.recall(key, action)
        if value is not None:
            return value
        self._lookups.labels("memory", action, "miss").inc()
        if self._redis is None:
            return None
        outcome, value = self._redis.get(key)
        self._lookups.labels("redis", action, outcome).inc()
        if value is not None:
            self._memory.put(key, value)
        return value

    def put(self, key: str, value: bytes) -> None:
        if len(value) > self._max_value_bytes:
            return
        self._memory.put(key, value)
        if self._redis is not None:
            self._writes.labels(self._redis.put(key, value)).inc()

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()


class _Memory:
    """LRU cache with expiry, bounded by its size in bytes; safe for many threads."""

    def __init__(self, max_bytes: int, ttl_s: int) -> None:
        self._lock = threading.Lock()
        self._entries: TTLCache[str, bytes] = TTLCache(
            max_bytes, ttl_s, getsizeof=lambda value: _ENTRY_BYTES + len(value)
        )

    def get(self, key: str) -> bytes | None:
        with self._lock:
            return self._entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        with self._lock, suppress(ValueError):  # larger than the whole cache
            self._entries[key] = value


class _RedisTier:
    """Values in Redis, accessed from an event loop of its own, in which a look-up can be timed out.

    A value is stored with a checksum of the value and its key; a damaged or foreign value counts as an error.
    After a failed read, nothing is read or written for a while; after a failed write (Redis is full), nothing
    is written.
    """

    def __init__(self, url: str, ttl_s: int, timeout_s: float) -> None:
        self._ttl_s, self._timeout_s = ttl_s, timeout_s
        self._reads_again_at = self._writes_again_at = 0.0
        self._redis = RedisServers.of(url, "KBQA_REDIS_URL").async_client(timeout_s=timeout_s)
        self._runner: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def open(self) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="redis-cache", daemon=True)
        thread.start()
        self._runner = loop, thread

    def get(self, key: str) -> tuple[str, bytes | None]:
        """(`hit`, `miss`, `error` or `paused`; the value in the case of a hit)."""
        if self._runner is None or time.monotonic() < self._reads_again_at:
            return "paused", None
        try:
            stored = self._within_time(lambda: self._redis.get(key))
        except Exception as error:  # a server that is not Redis may cause any error
            self._reads_again_at = self._writes_again_at = self._pause(error)
            return "error", None
        if stored is None:
            return "miss", None
        value = stored[_CHECKSUM_BYTES:] if isinstance(stored, bytes) else b""
        if not isinstance(stored, bytes) or stored[:_CHECKSUM_BYTES] != _checksum(key, value):
            logger.warning("a value in Redis is damaged", extra={"key": key})
            return "error", None
        return "hit", value

    def put(self, key: str, value: bytes) -> str:
        """Returns `ok`, `error` or `paused`."""
        if self._runner is None or time.monotonic() < self._writes_again_at:
            return "paused"
        stored = _checksum(key, value) + value
        try:
            self._within_time(lambda: self._redis.set(key, stored, ex=self._ttl_s))
        except Exception as error:
            self._writes_again_at = self._pause(error)
            return "error"
        return "ok"

    def close(self) -> None:
        assert self._runner is not None
        loop, thread = self._runner
        self._runner = None
        asyncio.run_coroutine_threadsafe(self._redis.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _within_time(self, ask: Callable[[], Awaitable[T]]) -> T:
        async def asked() -> T:
            # The socket's timeouts alone do not bound an answer that arrives byte by byte.
            async with asyncio.timeout(2 * self._timeout_s):
                return await ask()

        assert self._runner is not None
        return asyncio.run_coroutine_threadsafe(asked(), self._runner[0]).result()

    def _pause(self, error: Exception) -> float:
        logger.warning("the Redis cache failed", extra={"error": explain(error), "pause_s": _PAUSE_S})
        return time.monotonic() + _PAUSE_S


def _checksum(key: str, value: bytes) -> bytes:
    digest = hashlib.blake2b(key.encode(), digest_size=_CHECKSUM_BYTES)
    digest.update(value)
    return digest.digest()

"""SPARQL results in Redis, which may be slow, full or gone without anyone noticing more than time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from kbqa.errors import ConfigurationError
from kbqa.kg.sparql import CheckedQuery, QueryResult, ResultFormat
from kbqa.telemetry import Metrics

logger = logging.getLogger(__name__)

# After a failure Redis is left alone for this long.
_PAUSE_S = 5.0
_MAX_VALUE_BYTES = 1 << 20


class SparqlCache:
    """Results by graph version, query and format; whatever fails is a miss.

    Args:
        url: of Redis; None for no cache.
        limits: caps on a result's size, which are part of what a result is.
        ttl_s: how long a result stays.
        timeout_s: how long Redis is waited for.

    Raises:
        ConfigurationError: `url` is none of Redis.
    """

    def __init__(
        self, url: str | None, metrics: Metrics, *, limits: tuple[int, int], ttl_s: int, timeout_s: float
    ) -> None:
        self._limits, self._ttl_s, self._timeout_s = limits, ttl_s, timeout_s
        self._lookups = metrics.counter("kbqa_kg_cache_requests_total")
        self._closed_until = 0.0
        self._redis: Redis | None = None
        if url is not None:
            try:
                self._redis = Redis.from_url(
                    url,
                    socket_timeout=timeout_s,
                    socket_connect_timeout=timeout_s,
                    retry=Retry(NoBackoff(), 0),
                )
            except ValueError as error:
                raise ConfigurationError(f"KBQA_REDIS_URL: {error}") from error

    async def get(
        self, kg: str, version: str, query: CheckedQuery, result: ResultFormat
    ) -> QueryResult | None:
        """The result as it was stored, or None."""
        if self._redis is None or query.volatile or time.monotonic() < self._closed_until:
            return None
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                value = await self._redis.get(self._key(kg, version, query, result))
        except (RedisError, OSError, TimeoutError) as error:
            self._pause(error)
            return None
        self._lookups.labels("redis", "hit" if value else "miss").inc()
        if value is None:
            return None
        assert isinstance(value, bytes)
        head, _, body = value.partition(b"\n")
        return QueryResult(body, result, **json.loads(head))

    async def put(self, kg: str, version: str, query: CheckedQuery, result: QueryResult) -> None:
        """Store a result. Failures have none, so they are never stored."""
        too_large = len(result.body) > _MAX_VALUE_BYTES
        if self._redis is None or query.volatile or too_large or time.monotonic() < self._closed_until:
            return
        head = json.dumps({"rows": result.rows, "truncated": result.truncated})
        value = head.encode() + b"\n" + result.body
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                await self._redis.set(self._key(kg, version, query, result.format), value, ex=self._ttl_s)
        except (RedisError, OSError, TimeoutError) as error:
            self._pause(error)

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    def _key(self, kg: str, version: str, query: CheckedQuery, result: ResultFormat) -> str:
        parts = json.dumps([query.canonical, result.value, self._limits])
        return f"kbqa:sparql:{kg}:{version}:{hashlib.sha256(parts.encode()).hexdigest()}"

    def _pause(self, error: Exception) -> None:
        self._closed_until = time.monotonic() + _PAUSE_S
        self._lookups.labels("redis", "error").inc()
        logger.warning("SPARQL cache does not answer", extra={"error": str(error), "pause_s": _PAUSE_S})

"""Key-value stores with expiry: in this process, or in Redis and shared by all gateways."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, cast

from cachetools import TLRUCache
from redis.exceptions import RedisError

from kbqa.telemetry.metrics import Metrics
from services.gateway.errors import ShelfUnavailableError
from services.redis_servers import RedisServers, explain

_LARGEST = 4 * 2**20  # bytes of a value
_ENTRY = 1024  # bytes that a value takes besides itself: its name, in several places
_STILL = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end "
_RENEW = _STILL + "return redis.call('pexpire', KEYS[1], ARGV[2])"
_RELEASE = _STILL + "return redis.call('del', KEYS[1])"
# `ages` has the names of all values by the time at which they expire, in milliseconds; `index` those of one
# owner. `costs` has what each takes, its index and its pointer ("COST INDEX POINTER"), and the sum: `total`.
# It is one script, so that the sum stays right whatever several gateways do at a time. A Redis that evicts
# keys may drop one of `ages` and `costs`; the other is then dropped, too, or the sum would be too high for
# ever. The lists live for twice as long as a value, so that most values need not prolong them.
_PUT = """
local name, index, ages, costs, pointer = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local value, cost, ttl, most, room = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function forget(gone)
    local kept = redis.call('hget', costs, gone)
    if not kept then return redis.call('del', gone) end
    local cost, index, pointer = string.match(kept, '^(%d+) (%S+) ?(.*)$')
    redis.call('hdel', costs, gone)
    redis.call('hincrby', costs, 'total', -tonumber(cost))
    redis.call('zrem', index, gone)
    redis.call('zrem', ages, gone)
    redis.call('del', gone, pointer)
end
if redis.call('exists', ages, costs) == 1 then redis.call('del', ages, costs) end
for _, gone in ipairs(redis.call('zrangebyscore', ages, '-inf', now, 'limit', 0, 1000)) do forget(gone) end
if redis.call('hexists', costs, name) == 1 then forget(name) end
redis.call('set', name, value, 'px', ttl)
local kept = cost .. ' ' .. index
if pointer then
    redis.call('set', pointer, ARGV[6], 'px', ttl)
    kept = kept .. ' ' .. pointer
end
redis.call('zadd', index, now + ttl, name)
redis.call('zadd', ages, now + ttl, name)
redis.call('hset', costs, name, kept)
local total = redis.call('hincrby', costs, 'total', cost)
if redis.call('pttl', index) < ttl then redis.call('pexpire', index, 2 * ttl) end
if redis.call('pttl', ages) < ttl then
    redis.call('pexpire', ages, 2 * ttl)
    redis.call('pexpire', costs, 2 * ttl)
end
for _ = most + 1, redis.call('zcard', index) do forget(redis.call('zpopmin', index)[1]) end
while total > room and redis.call('zcard', ages) > 0 do
    forget(redis.call('zpopmin', ages)[1])
    total = tonumber(redis.call('hget', costs, 'total'))
end
"""


class Pointer(NamedTuple):
    """A small value under a key of its own that says where another value is, and is dropped with it."""

    key: str
    value: bytes


class AnswerShelf(Protocol):
    """A store of values by key, each with a time to live. The number of an owner's values and the size of all
    values are limited.

    A claim is a small value that holds a place while its value is being made. It is never dropped to make
    room, and only who made it renews or releases it.

    Raises:
        ShelfUnavailableError: any method, if the store is in Redis and Redis does not answer.
    """

    async def get(self, key: str) -> bytes | None: ...

    async def put(
        self, key: str, value: bytes, ttl_s: float, owner: str = "", pointer: Pointer | None = None
    ) -> bool:
        """Store a value, replacing an earlier one or a claim.

        Args:
            owner: whose oldest values make room for this one; if all values are too large together, the
                oldest of anybody do.
            pointer: is stored with it, replacing a claim.

        Returns:
            whether it was stored; a very large value is not.
        """
        ...

    async def claim(self, key: str, value: bytes, ttl_s: float) -> bool:
        """Store a claim unless there is a value or a claim; returns whether it was stored."""
        ...

    async def renew(self, key: str, value: bytes, ttl_s: float) -> bool:
        """Let a claim live on, if it is still this one; returns whether it is."""
        ...

    async def release(self, key: str, value: bytes) -> None:
        """Remove a claim or a pointer, if it is still this one."""
        ...

    async def close(self) -> None: ...


class _Kept(NamedTuple):
    """A value, and until when it is kept, by the shelf's clock."""

    owner: str
    value: bytes
    until: float
    pointer: Pointer | None

    @property
    def size(self) -> int:
        return _size(self.value, self.pointer)


def _size(value: bytes, pointer: Pointer | None) -> int:
    return len(value) + _ENTRY + (0 if pointer is None else len(pointer.value) + _ENTRY)


class MemoryShelf:
    """A store in this process.

    Args:
        most: maximum number of values of an owner.
        room: maximum size of all values, in bytes.
        clock: seconds.
    """

    def __init__(self, most: int, room: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._room, self._clock = most, room, clock
        # Both are in order of age, oldest first.
        self._values: dict[str, _Kept] = {}
        self._owned: dict[str, dict[str, None]] = {}
        self._pointers: dict[str, tuple[str, bytes]] = {}  # the key that each points to, and its value
        self._size = 0
        # As many as requests that are being answered.
        self._claims = TLRUCache[str, tuple[float, bytes]](math.inf, _expires_at, clock)

    async def get(self, key: str) -> bytes | None:
        if key in self._claims:
            return self._claims[key][1]
        target, found = self._pointers.get(key, (key, None))
        kept = self._values.get(target)
        if kept is None or kept.until <= self._clock():
            return None
        return kept.value if found is None else found

    async def put(
        self, key: str, value: bytes, ttl_s: float, owner: str = "", pointer: Pointer | None = None
    ) -> bool:
        if len(value) > _LARGEST:
            return False
        self._claims.pop(key, None)
        self._forget(key)
        now = self._clock()
        if pointer is not None:
            self._claims.pop(pointer.key, None)
            self._pointers[pointer.key] = key, pointer.value
        self._values[key] = kept = _Kept(owner, value, now + ttl_s, pointer)
        self._size += kept.size
        owned = self._owned.setdefault(owner, {})
        owned[key] = None
        if len(owned) > self._most:
            self._forget(next(iter(owned)))
        while self._values:
            oldest, kept = next(iter(self._values.items()))
            if self._size <= self._room and kept.until > now:
                break
            self._forget(oldest)
        return True

    def _forget(self, key: str) -> None:
        if (kept := self._values.pop(key, None)) is None:
            return
        self._size -= kept.size
        if kept.pointer is not None:
            self._pointers.pop(kept.pointer.key, None)
        owned = self._owned[kept.owner]
        del owned[key]
        if not owned:
            del self._owned[kept.owner]

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
        if self._pointers.get(key, ("", None))[1] == value:
            del self._pointers[key]

    async def close(self) -> None:
        self._claims.clear()
        self._pointers.clear()
        self._values.clear()
        self._owned.clear()
        self._size = 0


def _expires_at(_: str, value: tuple[float, bytes], now: float) -> float:
    return now + value[0]


class RedisShelf:
    """A store in Redis: compressed values under names that begin with `prefix`.

    Args:
        most: maximum number of values of an owner.
        room: maximum size of all values in Redis, in bytes, so that they leave room for queues in the same
            Redis.
        timeout_s: timeout for Redis, in seconds.

    Raises:
        ConfigurationError: `url` is not a Redis URL.
    """

    def __init__(
        self, url: str, prefix: str, most: int, room: int, metrics: Metrics, *, timeout_s: float
    ) -> None:
        self._prefix, self._most, self._room = prefix, most, room
        self._failures = metrics.counter("kbqa_gateway_redis_failures_total").labels("answers")
        servers = RedisServers.of(url, "KBQA_REDIS_URL")
        # A pooled connection may belong to a Redis that was replaced: retry once, immediately.
        self._redis = servers.async_client(timeout_s=timeout_s, retries=1)
        self._put = self._redis.register_script(_PUT)

    async def get(self, key: str) -> bytes | None:
        try:
            value = cast("bytes | None", await self._redis.get(self._name(key)))
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error
        return None if value is None else zlib.decompress(value)

    async def put(
        self, key: str, value: bytes, ttl_s: float, owner: str = "", pointer: Pointer | None = None
    ) -> bool:
        if len(value) > _LARGEST:
            return False
        names = [key, f"newest:{owner}", "ages", "costs"]
        packed = zlib.compress(value)
        arguments: list[bytes | int] = [packed, 0, int(ttl_s * 1000), self._most, self._room]
        if pointer is not None:
            pointer = pointer._replace(value=zlib.compress(pointer.value))
            names.append(pointer.key)
            arguments.append(pointer.value)
        arguments[1] = _size(packed, pointer)
        try:
            await self._put([self._name(name) for name in names], arguments)
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error
        return True

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

    async def close(self) -> None:
        await self._redis.aclose()

    def _name(self, key: str) -> str:
        return f"{self._prefix}:{key}"

    def _unavailable(self, error: Exception) -> ShelfUnavailableError:
        self._failures.inc()
        return ShelfUnavailableError(explain(error))

"""Turns: gateways that share a Redis change the weights of their engines one after another.

    kbqa:gateway:turn    whose turn it is; expires unless it is renewed

vLLM with whole weights holds a single version and cannot answer while its weights change. Without turns, this
would happen at all gateways at once, because all of them see a promotion within seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redis.exceptions import LockError, RedisError
from redis.lock import Lock

from services.redis_servers import RedisServers

logger = logging.getLogger(__name__)

_KEY = "kbqa:gateway:turn"
_POLL_S = 0.5


class Turns:
    """The turns of one gateway.

    Args:
        url: of the Redis that the gateways share.
        timeout_s: timeout for Redis, in seconds.
        valid_s: how long a gateway that was killed keeps its turn, in seconds.

    Raises:
        ConfigurationError: `url` is not a Redis URL.
    """

    def __init__(self, url: str, *, timeout_s: float, valid_s: float = 30.0) -> None:
        self._redis = RedisServers.of(url, "KBQA_REDIS_URL").client(timeout_s=timeout_s, retries=1)
        self._valid_s = valid_s

    @contextmanager
    def turn(self, stopping: threading.Event) -> Iterator[None]:
        """Wait until no other gateway has its turn, then have it; without Redis, nobody waits.

        Args:
            stopping: ends the wait.
        """
        lock = self._redis.lock(_KEY, timeout=self._valid_s, thread_local=False)
        if not self._wait(lock, stopping):
            yield
            return
        ended = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(lock, ended), name="turn", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join()
            with suppress(RedisError, LockError):  # it expires
                lock.release()

    def _wait(self, lock: Lock, stopping: threading.Event) -> bool:
        """Whether the lock was got."""
        try:
            while not lock.acquire(blocking=False):
                if stopping.wait(_POLL_S):
                    return False
        except RedisError as error:
            logger.warning("no turn is waited for", extra={"reason": type(error).__name__})
            return False
        return True

    def _keep(self, lock: Lock, ended: threading.Event) -> None:
        while not ended.wait(self._valid_s / 3):
            # A Redis that was away or has lost the key costs the turn, and no more.
            with suppress(RedisError, LockError):
                lock.reacquire()

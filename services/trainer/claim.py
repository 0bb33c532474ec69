"""The claim on a broker's queues: they carry the messages of one home at a time.

    PREFIXkbqa.home    which home, and which trainer of it; expires unless it is renewed

Trainers of two homes that read the same queue would make dead letters of each other's replies. So a trainer
that finds another home's claim stands by. A trainer of the same home takes the claim over, because the home's
lease (`kbqa.runs.lease`) decides between these two. Only Redis knows claims; with another broker, every home
needs a virtual host of its own.

A Redis that fails over to a replica may have forgotten a claim, because replication is asynchronous. Whoever
held it claims again at its next renewal, or is told then that another home was faster. Until then, replies
may become dead letters, which the trainers ask for again; no run depends on the claim.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from redis import Redis
from redis.exceptions import RedisError

from kbqa.errors import QueueUnavailableError, RunConflictError
from services.redis_servers import SCHEMES, RedisServers, explain
from services.urls import split_url

logger = logging.getLogger(__name__)

_KEY = "kbqa.home"
_VALID_S = 30.0  # after a trainer was killed, for which another home waits
_RENEWED_S = 5.0
_TIMEOUT_S = 3.0

# A full Redis lets a claim live on, although it accepts no new one.
_TAKE = """
local held = redis.call('get', KEYS[1])
if held == ARGV[1] .. ARGV[2] then redis.call('pexpire', KEYS[1], ARGV[3]) return nil end
if held and string.sub(held, 1, #ARGV[1]) ~= ARGV[1] then return held end
redis.call('set', KEYS[1], ARGV[1] .. ARGV[2], 'px', ARGV[3])
return nil
"""
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"


class QueueClaim:
    """A home's claim on the queues with a prefix; this process renews it until it releases it.

    Args:
        lost: called, in another thread, with the reason when another home has the queues after all.
    """

    def __init__(
        self, broker_url: str, prefix: str, lost: Callable[[str], None], *, renewed_s: float = _RENEWED_S
    ) -> None:
        self._redis = None
        if split_url(broker_url).scheme in SCHEMES:
            servers = RedisServers.of(broker_url, "KBQA_BROKER_URL or KBQA_REDIS_URL")
            # A pooled connection may belong to a Redis that was replaced: retry once, immediately.
            self._redis = servers.client(timeout_s=_TIMEOUT_S, retries=1)
        self._name, self._lost, self._renewed_s = f"{prefix}{_KEY}", lost, renewed_s
        self._ending = threading.Event()
        self._renewing: threading.Thread | None = None
        self._claim = ("", "")

    def take(self, home: str, holder: str) -> None:
        """Claim the queues.

        Args:
            home: id of the home.
            holder: name of this process, for people.

        Raises:
            RunConflictError: they belong to another home.
            QueueUnavailableError: Redis does not answer.
        """
        if self._redis is None:
            return
        self._claim = f"{home} ", holder
        if (reason := self._offer(self._redis)) is not None:
            raise RunConflictError(reason)
        self._renewing = threading.Thread(
            target=self._renew, args=(self._redis,), name="queue-claim", daemon=True
        )
        self._renewing.start()

    def release(self) -> None:
        """Leave the queues to another home."""
        if self._redis is None or self._renewing is None:
            return
        self._ending.set()
        self._renewing.join()
        try:
            self._redis.eval(_RELEASE, 1, self._name, "".join(self._claim))
        except (RedisError, OSError) as error:  # it expires
            logger.warning("the queues cannot be released", extra={"reason": explain(error)})

    def _renew(self, client: Redis) -> None:
        while not self._ending.wait(self._renewed_s):
            try:
                reason = self._offer(client)
            except QueueUnavailableError as error:  # then there are no messages either
                logger.warning("the claim on the queues is not renewed", extra={"reason": str(error)})
                continue
            if reason is not None:
                self._lost(reason)
                return

    def _offer(self, client: Redis) -> str | None:
        """Take or renew the claim; returns why that is not possible."""
        try:
            held = client.eval(_TAKE, 1, self._name, *self._claim, str(int(_VALID_S * 1000)))
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(f"the queues cannot be claimed ({explain(error)})") from error
        if not isinstance(held, bytes):
            return None
        other = held.decode(errors="replace").partition(" ")[2]
        return (
            f"{other} uses the queues of this Redis for another KBQA_HOME: set KBQA_QUEUE_PREFIX for this "
            "trainer and its workers, or stop that trainer"
        )

"""Celery as both ends of the queues use it: JSON only, late acknowledgement, one consumer per process.

app = create_celery("trainer", broker_url)
require_broker(app)
Outbox(app, ROLLOUTS, ROLL_OUT_TASK, at_most=256).send(encode(request))

`services.consumer` takes messages out of a queue.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError
from redis import Redis

from kbqa.errors import ConfigurationError, QueueUnavailableError
from services.redis_servers import SCHEMES, RedisServers, explain
from services.urls import split_url, without_password

ATTEMPT_HEADER = "kbqa_attempt"
"""Header of a message that was sent again: the number of this attempt, from 2 on."""

LARGEST_CLOCK_OFFSET_S = 5.0
"""How far a clock may be off before deadlines lose their meaning, in seconds."""

SENDING_CONNECTIONS = 4
"""Most connections that a process keeps for sending, besides those over which it consumes. With Redis, each
takes two sockets. A thread that finds none free waits, because sending takes a few milliseconds."""

_CONNECT_TIMEOUT_S = 3.0
_ANSWER_TIMEOUT_S = 10.0  # of Redis, which answers in milliseconds; a machine that vanished never does
_POLL_S = 0.2
_LOOK_S = 0.1

# The kernel then notices after 20 s, not after two hours, that the machine at the other end has vanished.
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


def create_celery(
    name: str,
    broker_url: str,
    *,
    prefix: str = "",
    consumes: str = "",
    visibility_timeout_s: float = 120.0,
) -> Celery:
    """An application without tasks.

    Args:
        broker_url: that of a Redis has a form of `services.redis_servers`; other brokers have Kombu's forms.
        prefix: begins every key in Redis, so that several installations can share it.
        consumes: the queue from which it takes messages, if any.
        visibility_timeout_s: seconds after which a dead consumer's message is given to another one. It must
            exceed the time that any consumer works on a message. (Redis only; other brokers notice a dead
            consumer at once.)

    Raises:
        ConfigurationError: the URL is malformed, or there is a prefix, but the broker is not Redis.
    """
    scheme = split_url(broker_url).scheme
    settings: dict[str, Any] = {"broker_url": broker_url}
    if scheme in (*SCHEMES, "sentinel"):  # Kombu's form for sentinels lacks their name for the master
        servers = RedisServers.of(broker_url, "KBQA_BROKER_URL or KBQA_REDIS_URL")
        settings = servers.celery_settings(timeout_s=_CONNECT_TIMEOUT_S)
    app = Celery(name, broker=settings["broker_url"], set_as_current=False)
    app.conf.update(
        settings,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=_CONNECT_TIMEOUT_S,
        broker_pool_limit=SENDING_CONNECTIONS,
    )
    is_redis = scheme.partition("+")[0] in ("redis", "rediss")
    if prefix and not is_redis:
        raise ConfigurationError(
            "KBQA_QUEUE_PREFIX: only Redis knows prefixes; name a virtual host in KBQA_BROKER_URL instead"
        )
    if is_redis:
        app.conf.update(
            # A message that was prefetched by a process that dies is lost until the visibility timeout;
            # while it is in the queue, any other process may take it.
            worker_disable_prefetch=True,
            # With prefetch disabled, free threads are counted instead of prefetch credits. Kombu loses a
            # credit for good when an acknowledgement fails; after the last one it would never read again.
            worker_prefetch_multiplier=0,
            broker_transport_options={
                **settings.get("broker_transport_options", {}),
                "visibility_timeout": visibility_timeout_s,
                "socket_connect_timeout": _CONNECT_TIMEOUT_S,
                "socket_timeout": _ANSWER_TIMEOUT_S,
                "socket_keepalive": True,
                "socket_keepalive_options": {
                    getattr(socket, name): value
                    for name, value in _KEEPALIVE.items()
                    if hasattr(socket, name)
                },
                "global_keyprefix": prefix,
                # Embed JSON in JSON: base64 would make every message a third larger.
                "body_encoding": "utf-8",
                # No message has a priority; without this, Kombu asks for a list of each of four.
                "priority_steps": [0],
                **_taken_messages(consumes),
            },
        )
    return app


def _taken_messages(queue: str) -> dict[str, str]:
    """Redis keys for messages that were taken but not acknowledged.

    Each queue has keys of its own. With common keys, any consumer would return the messages of all queues
    after its own visibility timeout, and the one for replies is shorter than a rollout.
    """
    if not queue:
        return {}
    return {
        "unacked_key": f"{queue}.unacked",
        "unacked_index_key": f"{queue}.unacked_index",
        "unacked_mutex_key": f"{queue}.unacked_mutex",
    }


def require_broker(app: Celery, *, wait_s: float = 0.0) -> None:
    """Make sure that the broker answers.

    Args:
        wait_s: seconds to wait for it to start.

    Raises:
        QueueUnavailableError: it does not answer; the message contains its address.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            with app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=_CONNECT_TIMEOUT_S)
            return
        except (OperationalError, OSError) as error:
            if time.monotonic() > deadline:
                raise QueueUnavailableError(
                    f"no message broker answers at {_address(app)} ({explain(error)}): "
                    "start Redis, or set KBQA_BROKER_URL or KBQA_REDIS_URL to another broker"
                ) from error
        time.sleep(_POLL_S)


def send(app: Celery, queue: str, task: str, message: str, *, attempt: int = 1) -> None:
    """Put an encoded message into a queue; tries only once.

    Args:
        attempt: number of the attempt to process the message, from 1 on.

    Raises:
        QueueUnavailableError: the broker did not accept it.
    """
    headers = {ATTEMPT_HEADER: attempt} if attempt > 1 else None
    with connected(app) as connection:
        app.send_task(task, args=[message], queue=queue, headers=headers, connection=connection, retry=False)


class Outbox:
    """Sends encoded messages to a queue in which only so many may wait.

    The broker is asked for their number at most ten times a second; in between, those that were sent count as
    waiting.

    Args:
        at_most: maximum number of messages waiting in the queue.
    """

    def __init__(self, app: Celery, queue: str, task: str, *, at_most: int) -> None:
        self._app, self._queue, self._task, self._at_most = app, queue, task, at_most
        self._waiting = 0
        self._look_at = 0.0  # time.monotonic()

    def send(self, message: str) -> None:
        """Put a message into the queue; tries only once.

        Raises:
            QueueUnavailableError: the broker did not accept it, or too many messages are waiting.
        """
        if (now := time.monotonic()) >= self._look_at or self._waiting >= self._at_most:
            with connected(self._app) as connection:
                self._waiting = depth(self._app, connection, self._queue)
            self._look_at = now + _LOOK_S
        if self._waiting >= self._at_most:
            raise QueueUnavailableError(
                f"{self._waiting} messages are waiting in the queue {self._queue}, and no consumer takes "
                "them: check that one is running (kbqa queue list)"
            )
        send(self._app, self._queue, self._task, message)
        self._waiting += 1


@contextmanager
def connected(app: Celery, *, alone: bool = False) -> Iterator[Connection]:
    """A connection to the broker.

    Args:
        alone: open a new connection and close it at the end; closing returns the messages that it has taken
            and not acknowledged.

    Raises:
        QueueUnavailableError: the broker fails while the block runs; the message contains the broker's
            error.
    """
    try:
        with app.connection_for_read() if alone else app.connection_or_acquire() as connection:
            try:
                yield connection
            except (*connection.connection_errors, *connection.channel_errors) as error:
                raise OperationalError(str(error)) from error
    except (OperationalError, OSError) as error:
        raise QueueUnavailableError(
            f"the broker at {_address(app)} refuses or does not answer ({explain(error)})"
        ) from error


def depth(app: Celery, connection: Connection, queue: str) -> int:
    """Number of messages waiting in a queue."""
    count = app.amqp.queues[queue](connection.default_channel).queue_declare().message_count
    return int(count)


def clock_offset_s(app: Celery) -> float | None:
    """How far this machine's clock is ahead of the broker's, in seconds; None unless the broker is a Redis.

    Raises:
        QueueUnavailableError: the broker does not answer.
    """
    with connected(app) as connection:
        client = getattr(connection.default_channel, "client", None)
        if not isinstance(client, Redis):
            return None
        seconds, microseconds = client.time()
        return time.time() - (seconds + microseconds / 1e6)


def _address(app: Celery) -> str:
    return ", ".join(map(without_password, app.conf.broker_url.split(";")))  # as Kombu separates sentinels

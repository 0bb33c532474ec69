"""Celery as both ends of the queues use it: JSON only, late acknowledgement, one consumer a process.

app = create_celery("rollout_worker", broker_url)
require_broker(app)
app.task(name=ROLL_OUT_TASK)(roll_out)
with on_termination(stop_consuming):
    consume(app, ROLLOUTS, concurrency=16)
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import celery.worker.state
from celery import Celery
from celery.worker import WorkController
from kombu.exceptions import OperationalError

from kbqa.errors import QueueUnavailableError

logger = logging.getLogger(__name__)

BROKER_WAIT_S = 5.0
"""How long a service that starts waits for the broker."""

_CONNECT_TIMEOUT_S = 3.0
_POLL_S = 0.2
_BACK_OFF_S = (0.5, 10.0)  # first and longest pause before a consumer that failed starts anew

_stopping = threading.Event()


def create_celery(name: str, broker_url: str, *, visibility_timeout_s: float = 120.0) -> Celery:
    """An application without tasks.

    Args:
        visibility_timeout_s: after that, a message that a dead consumer had taken is given to
            another one (Redis only; others notice at once).
    """
    app = Celery(name, broker=broker_url, set_as_current=False)
    app.conf.update(
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
    )
    if urlsplit(broker_url).scheme in ("redis", "rediss"):
        app.conf.update(
            # A message that waits in a busy process is lost with it until the visibility timeout;
            # in the queue, any other may take it.
            worker_disable_prefetch=True,
            # Threads that are free are counted then, not credit. Kombu loses a credit for good when
            # an acknowledgement fails, and with the last one it would never read again.
            worker_prefetch_multiplier=0,
            broker_transport_options={
                "visibility_timeout": visibility_timeout_s,
                "socket_connect_timeout": _CONNECT_TIMEOUT_S,
                "socket_keepalive": True,
            },
        )
    return app


def require_broker(app: Celery, *, wait_s: float = 0.0) -> None:
    """Make sure that the broker answers.

    Args:
        wait_s: how long it may take to come up.

    Raises:
        QueueUnavailableError: it does not; names its address.
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
                    f"no message broker answers at {_without_password(app.conf.broker_url)} ({error}): "
                    "start Redis, or name another broker by KBQA_BROKER_URL or KBQA_REDIS_URL"
                ) from error
        time.sleep(_POLL_S)


def send(app: Celery, queue: str, task: str, message: str) -> None:
    """Put an encoded message into a queue, trying once.

    Raises:
        QueueUnavailableError: the broker did not take it.
    """
    try:
        app.send_task(task, args=[message], queue=queue, retry=False)
    except (OperationalError, OSError) as error:
        raise QueueUnavailableError(
            f"{_without_password(app.conf.broker_url)} did not take a message ({error})"
        ) from error


def consume(app: Celery, queue: str, *, concurrency: int) -> None:
    """Run the tasks of a queue in threads, in this thread until `stop_consuming` is called.

    The broker may come and go meanwhile. Returns when the tasks that run have ended.
    """
    for chatty in ("celery.worker.strategy", "celery.app.trace"):  # two lines a task, its arguments included
        logging.getLogger(chatty).setLevel(logging.WARNING)
    pause_s, longest_s = _BACK_OFF_S
    while not _stopping.is_set():
        began = time.monotonic()
        controller = WorkController(
            app=app,
            queues=[queue],
            concurrency=concurrency,
            pool_cls="threads",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        controller.start()
        if _stopping.is_set():
            return
        # What it could not read is gone from the queue; go on with the rest.
        pause_s = _BACK_OFF_S[0] if time.monotonic() - began > longest_s else min(2 * pause_s, longest_s)
        logger.error("the consumer failed and starts anew", extra={"queue": queue, "pause_s": pause_s})
        celery.worker.state.should_stop = None
        _stopping.wait(pause_s)


def stop_consuming() -> None:
    """Let `consume` take no further message and return; safe in a signal handler."""
    _stopping.set()
    celery.worker.state.should_stop = 0


@contextmanager
def on_termination(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at SIGTERM and SIGINT while the block runs; for the main thread."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:***@{host}").geturl()

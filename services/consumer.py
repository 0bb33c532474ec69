"""The end of a queue at which messages are worked on, in threads, and none is lost or comes for ever.

app = create_celery("rollout_worker", broker_url, consumes=ROLLOUTS)
work_on(app, ROLLOUTS, ROLL_OUT_TASK, roll_out)
with on_termination(stop_consuming):
    finished = consume(app, ROLLOUTS, concurrency=16, drain_s=10)

A message whose consumer dies, or cannot do its work just now, is taken again, up to
`MOST_ATTEMPTS` times. What nobody can do anything with becomes a dead letter.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

import celery.worker.state
from celery import Celery, Task
from celery.concurrency.thread import TaskPool
from celery.exceptions import Reject
from celery.worker import WorkController
from celery.worker.consumer import Consumer

from kbqa.errors import MessageError, QueueUnavailableError
from services.broker import ATTEMPT_HEADER, send
from services.dead_letters import DeadLetters

logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 5

_PAUSE_S = 1.0  # before a message goes back that could not be worked on just now
_BACK_OFF_S = (0.5, 10.0)  # first and longest pause before a consumer that failed starts anew

_stopping = threading.Event()


def work_on(app: Celery, queue: str, task: str, body: Callable[[str], None]) -> None:
    """Say what is done with the messages of a queue.

    Args:
        body: a `MessageError` of it makes the message a dead letter; after any other exception
            it is taken again.
    """

    def take(self: Task, message: object = None, *_: object, **__: object) -> None:
        attempt = int((self.request.headers or {}).get(ATTEMPT_HEADER, 1))
        letters = DeadLetters(app, queue)
        try:
            if self.request.delivery_info.get("redelivered"):
                # The mark is all that the broker tells: a copy carries the count.
                if attempt >= MOST_ATTEMPTS:
                    reason = f"taken {attempt} times, and each time its consumer ended before it did"
                    letters.bury(message, reason, task, attempt)
                else:
                    send(app, queue, task, str(message), attempt=attempt + 1)
                return
            try:
                if not isinstance(message, str):
                    raise MessageError(f"a string is needed, not {type(message).__name__}")
                body(message)
            except MessageError as error:
                letters.bury(message, str(error), task, attempt)
            except Exception as error:
                logger.exception("a message cannot be processed", extra={"queue": queue, "attempt": attempt})
                if attempt >= MOST_ATTEMPTS:
                    reason = f"failed {attempt} times, at last with {type(error).__name__}: {error}"
                    letters.bury(message, reason, task, attempt)
                    return
                _stopping.wait(_PAUSE_S)
                send(app, queue, task, str(message), attempt=attempt + 1)
        except QueueUnavailableError as error:
            raise Reject(str(error), requeue=True) from error

    app.task(take, name=task, bind=True)


def consume(app: Celery, queue: str, *, concurrency: int, drain_s: float) -> bool:
    """Work on the messages of a queue in threads, until `stop_consuming` is called.

    The broker may come and go meanwhile.

    Args:
        drain_s: what still runs that long after `stop_consuming` is handed back to the queue.

    Returns:
        Whether all threads have ended. Where they have not, the process has to exit without
        waiting for them.
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
            pool_cls=_bounded_pool(drain_s),
            consumer_cls=_careful_consumer(DeadLetters(app, queue)),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        controller.start()
        if _stopping.is_set():
            return controller.pool is None or bool(controller.pool.idle)  # None: it had not begun
        # What it could not read is gone from the queue; go on with the rest.
        pause_s = _BACK_OFF_S[0] if time.monotonic() - began > longest_s else min(2 * pause_s, longest_s)
        logger.error("the consumer failed and is restarted", extra={"queue": queue, "pause_s": pause_s})
        celery.worker.state.should_stop = None
        _stopping.wait(pause_s)
    return True


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


def _bounded_pool(drain_s: float) -> type[TaskPool]:
    """Celery's pool of threads, which waits for them no longer than `drain_s`.

    The channel is closed after that, which gives back whatever was not acknowledged.
    """

    class BoundedPool(TaskPool):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._running: set[Future[Any]] = set()

        @property
        def idle(self) -> bool:
            return all(future.done() for future in self._running)

        def on_apply(self, *args: Any, **kwargs: Any) -> Any:
            result = super().on_apply(*args, **kwargs)
            self._running.add(result.f)
            result.f.add_done_callback(self._running.discard)
            return result

        def on_stop(self) -> None:
            self.executor.shutdown(wait=False, cancel_futures=True)
            running = set(self._running)
            logger.info("no further messages are taken", extra={"running": len(running), "drain_s": drain_s})
            wait(running, drain_s)

    return BoundedPool


def _careful_consumer(letters: DeadLetters) -> type[Consumer]:
    """Celery's consumer, which puts aside what it cannot read instead of dropping it."""

    class CarefulConsumer(Consumer):  # type: ignore[misc]
        def start(self) -> None:
            try:
                super().start()
            except (ValueError, TypeError, AttributeError) as error:
                # No envelope, so there is nothing to acknowledge; it is out of the queue.
                raw = getattr(error, "doc", getattr(error, "object", ""))
                letters.bury(raw, f"no message of a queue: {type(error).__name__}: {error}", None, 1)
                raise

        def on_unknown_message(self, body: Any, message: Any) -> None:
            self._put_aside(message, "it names no task")

        def on_unknown_task(self, body: Any, message: Any, error: Exception) -> None:
            self._put_aside(message, f"nobody here does the task {error}")

        def on_invalid_task(self, body: Any, message: Any, error: Exception) -> None:
            self._put_aside(message, f"no message of a task: {error}")

        def on_decode_error(self, message: Any, error: Exception) -> None:
            self._put_aside(message, f"{message.content_type} is not read: {error}")

        def _put_aside(self, message: Any, reason: str) -> None:
            letters.bury(message.body, reason, None, 1)
            message.ack_log_error(logger, self.connection_errors)

    return CarefulConsumer

"""Consumes a queue in threads. No message is lost, and none is retried for ever.

app = create_celery("rollout_worker", broker_url, consumes=ROLLOUTS)
work_on(app, ROLLOUTS, ROLL_OUT_TASK, roll_out)
with on_termination(stop_consuming):
    finished = consume(app, ROLLOUTS, concurrency=16, drain_s=10)

A message is retried, up to `MOST_ATTEMPTS` times in all, if its consumer dies or fails on it. A message that
nobody can process becomes a dead letter. What a consumer hands back when it is told to end, or cannot process
for a reason of its own (`NotNowError`), is not an attempt.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

import celery.worker.state
from celery import Celery, Task
from celery.concurrency.thread import TaskPool
from celery.exceptions import Reject
from celery.worker import WorkController
from celery.worker.consumer import Consumer
from celery.worker.request import Request

from kbqa.errors import KbqaError, MessageError, QueueUnavailableError
from services.broker import ATTEMPT_HEADER, send
from services.dead_letters import DeadLetters

logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 5

_PAUSE_S = 1.0  # before a message that could not be processed goes back to the queue
_NOT_NOW_S = 5.0  # without messages, where none can be processed
_BACK_OFF_S = (0.5, 10.0)  # first and longest pause before a failed consumer is restarted
_RESUME_S = 1.0  # before the next attempt to consume again while there is no connection


class NotNowError(KbqaError):
    """No message can be processed here at the moment, whatever it says."""


_stopping = threading.Event()
_consumers: dict[str, Consumer] = {}  # the running one of each queue


def work_on(app: Celery, queue: str, task: str, body: Callable[[str], None]) -> None:
    """Set the function that processes the messages of a queue.

    Args:
        body: processes a message. If it raises `MessageError`, the message becomes a dead letter. After
            `NotNowError`, it goes back to the queue, and no others are taken for a while. After any other
            exception it is retried.
    """

    def take(self: Task, message: object = None, *_: object, **__: object) -> None:
        attempt = _attempt(self.request.headers)
        letters = DeadLetters(app, queue)
        try:
            if self.request.delivery_info.get("redelivered"):
                # The broker only marks a redelivered message; a copy of it carries the count.
                if attempt >= MOST_ATTEMPTS:
                    reason = f"taken {attempt} times; each time its consumer died before it was processed"
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
            except NotNowError as error:
                logger.error(
                    "no messages are taken for a while", extra={"queue": queue, "reason": str(error)}
                )
                pause_consuming(queue, _NOT_NOW_S)
                _stopping.wait(_PAUSE_S)  # until that holds for every thread
                send(app, queue, task, str(message), attempt=attempt)
            except Exception as error:
                logger.exception("a message cannot be processed", extra={"queue": queue, "attempt": attempt})
                if attempt >= MOST_ATTEMPTS:
                    reason = f"failed {attempt} times, the last time with {type(error).__name__}: {error}"
                    letters.bury(message, reason, task, attempt)
                    return
                _stopping.wait(_PAUSE_S)
                send(app, queue, task, str(message), attempt=attempt + 1)
        except QueueUnavailableError as error:
            _stopping.wait(_PAUSE_S)  # a full broker refuses at once, and hands out the same message again
            raise Reject(str(error), requeue=True) from error

    app.task(take, name=task, bind=True)


def consume(app: Celery, queue: str, *, concurrency: int, drain_s: float) -> bool:
    """Process the messages of a queue in threads, until `stop_consuming` is called.

    The broker may disappear and return meanwhile.

    Args:
        drain_s: seconds after `stop_consuming` until unfinished messages are returned to the queue.

    Returns:
        Whether all threads have ended. If not, the process must exit without waiting for them.
    """
    for chatty in ("celery.worker.strategy", "celery.app.trace"):  # they log each task, with its arguments
        logging.getLogger(chatty).setLevel(logging.WARNING)
    pause_s, longest_s = _BACK_OFF_S
    while not _stopping.is_set():
        began, unfinished = time.monotonic(), list[Request]()
        controller = WorkController(
            app=app,
            queues=[queue],
            concurrency=concurrency,
            pool_cls=_bounded_pool(drain_s, unfinished),
            consumer_cls=_careful_consumer(queue, DeadLetters(app, queue)),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )
        controller.start()
        for request in unfinished:
            _hand_back(app, queue, request)
        if _stopping.is_set():
            return controller.pool is None or bool(controller.pool.idle)  # None: it had not started yet
        # The unreadable message has left the queue; continue with the others.
        pause_s = _BACK_OFF_S[0] if time.monotonic() - began > longest_s else min(2 * pause_s, longest_s)
        logger.error("the consumer failed and is restarted", extra={"queue": queue, "pause_s": pause_s})
        celery.worker.state.should_stop = None
        _stopping.wait(pause_s)
    return True


def stop_consuming() -> None:
    """Make `consume` take no further messages and return; safe in a signal handler."""
    _stopping.set()
    celery.worker.state.should_stop = 0


def pause_consuming(queue: str, pause_s: float) -> None:
    """Take no further messages of a queue for so many seconds; those in progress go on."""
    if (consumer := _consumers.get(queue)) is not None:
        consumer.call_soon(_take_no_more, consumer, queue)
        _later(pause_s, queue)


def _later(pause_s: float, queue: str) -> None:
    timer = threading.Timer(pause_s, lambda: _consumers[queue].call_soon(_take_again, queue))
    timer.daemon = True
    timer.start()


def _take_no_more(consumer: Consumer, queue: str) -> None:
    if consumer.task_consumer is not None:
        consumer.cancel_task_queue(queue)


def _take_again(queue: str) -> None:
    consumer = _consumers[queue]  # perhaps another one since
    if _stopping.is_set():
        return
    if consumer.task_consumer is None:  # the broker is away
        _later(_RESUME_S, queue)
    else:
        consumer.add_task_queue(queue)


@contextmanager
def on_termination(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT while the block runs; for the main thread only."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, lambda *_: stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _attempt(headers: Mapping[str, Any] | None) -> int:
    return int((headers or {}).get(ATTEMPT_HEADER, 1))


def _bounded_pool(drain_s: float, unfinished: list[Request]) -> type[TaskPool]:
    """Celery's thread pool, which waits at most `drain_s` for its threads when it stops.

    Then it acknowledges the messages that are not finished, and adds them to `unfinished`. Celery would
    return them to the queue when it closes the channel, but would mark them as those of a dead consumer.
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
            for request in list(celery.worker.state.requests.values()):
                if not request.acknowledged and not request.delivery_info["redelivered"]:
                    unfinished.append(request)
                    request.acknowledge()

    return BoundedPool


def _hand_back(app: Celery, queue: str, request: Request) -> None:
    """Put a message back into the queue.

    Only once the channel is closed: until then this consumer waits for messages, and would get this one.
    """
    try:
        send(app, queue, request.type, request.args[0], attempt=_attempt(request.request_dict))
    except QueueUnavailableError as error:  # whoever sent it sends it again at its deadline
        logger.error("a message cannot be handed back", extra={"queue": queue, "reason": str(error)})


def _careful_consumer(queue: str, letters: DeadLetters) -> type[Consumer]:
    """Celery's consumer, which turns unreadable messages into dead letters instead of dropping them."""

    class CarefulConsumer(Consumer):  # type: ignore[misc]
        def start(self) -> None:
            _consumers[queue] = self
            try:
                super().start()
            except (ValueError, TypeError, AttributeError) as error:
                # Without an envelope there is nothing to acknowledge; the message has left the queue.
                raw = getattr(error, "doc", getattr(error, "object", ""))
                letters.bury(raw, f"not a queue message: {type(error).__name__}: {error}", None, 1)
                raise

        def on_unknown_message(self, body: Any, message: Any) -> None:
            self._put_aside(message, "the message names no task")

        def on_unknown_task(self, body: Any, message: Any, error: Exception) -> None:
            self._put_aside(message, f"unknown task {error}")

        def on_invalid_task(self, body: Any, message: Any, error: Exception) -> None:
            self._put_aside(message, f"not a valid task message: {error}")

        def on_decode_error(self, message: Any, error: Exception) -> None:
            self._put_aside(message, f"{message.content_type} is not accepted: {error}")

        def _put_aside(self, message: Any, reason: str) -> None:
            letters.bury(message.body, reason, None, 1)
            message.ack_log_error(logger, self.connection_errors)

    return CarefulConsumer

"""Messages that nobody could process, kept in a second queue beside the original one.

letters = DeadLetters(create_celery("cli", broker_url, consumes=ROLLOUTS), ROLLOUTS)
for letter in letters.read():
    letter.reason
letters.requeue({letter.id})
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from kombu import Connection
from pydantic import ValidationError

from kbqa.errors import MessageError
from kbqa.wire import BURIED_TASK, DeadLetter, dead_letters_of, decode, encode
from services.broker import connected, depth, send

logger = logging.getLogger(__name__)

MOST_LETTERS = 200
"""Maximum number of letters in a queue; the oldest are deleted first."""

# Together at most 25 MiB a queue, so that letters leave a Redis of 256 MB to the messages.
MOST_CHARACTERS = 2**17
"""Maximum length of a message; a longer one is truncated and cannot be sent again."""


class DeadLetters:
    """The dead letters of one queue.

    Args:
        app: created for that queue (`create_celery(…, consumes=queue)`), so that no letter is lost if its
            reader dies.
    """

    def __init__(self, app: Celery, queue: str) -> None:
        self._app, self._queue, self._name = app, queue, dead_letters_of(queue)

    def bury(self, message: object, reason: str, task: str | None, attempts: int) -> None:
        """Store a message as a dead letter.

        Raises:
            QueueUnavailableError: the broker does not accept it.
        """
        text = message if isinstance(message, str) else _readable(message)
        try:
            letter = _letter(self._queue, text, reason, task, attempts)
            encoded = encode(letter)
        except (ValidationError, MessageError):  # a lone surrogate
            text = text.encode(errors="replace").decode()
            encoded = encode(_letter(self._queue, text, ascii(reason), None, attempts))
        logger.error("a message became a dead letter", extra={"queue": self._queue, "reason": reason})
        with connected(self._app) as connection:
            self._make_room(connection)
        send(self._app, self._name, BURIED_TASK, encoded)

    def counts(self) -> dict[str, int]:
        """Count the messages of the queue.

        Returns:
            `waiting`; `taken`: taken but not finished, 0 if the broker does not tell; `dead`: dead letters.

        Raises:
            QueueUnavailableError: the broker does not answer.
        """
        with connected(self._app) as connection:
            channel = connection.default_channel
            taken = channel.client.hlen(channel.unacked_key) if hasattr(channel, "unacked_key") else 0
            waiting, dead = (depth(self._app, connection, name) for name in (self._queue, self._name))
            return {"waiting": waiting, "taken": int(taken), "dead": dead}

    def read(self) -> list[DeadLetter]:
        """All letters, oldest first; they stay in the queue.

        Raises:
            QueueUnavailableError: the broker does not answer.
        """
        with self._taken() as letters:
            return [letter for _, letter in letters]

    def requeue(self, ids: Collection[str] | None = None) -> list[str]:
        """Send letters again with their attempts reset; returns the ids of the letters sent.

        Args:
            ids: which letters; None means all. A truncated letter stays in the queue.

        Raises:
            QueueUnavailableError: the broker does not answer.
        """
        sent = []
        with self._taken() as letters:
            for message, letter in letters:
                if letter.whole and letter.task is not None and (ids is None or letter.id in ids):
                    send(self._app, self._queue, letter.task, letter.message)
                    message.ack()
                    sent.append(letter.id)
        return sent

    def purge(self, ids: Collection[str] | None = None) -> list[str]:
        """Remove letters; returns their ids.

        Args:
            ids: which letters; None means all.

        Raises:
            QueueUnavailableError: the broker does not answer.
        """
        removed = []
        with self._taken() as letters:
            for message, letter in letters:
                if ids is None or letter.id in ids:
                    message.ack()
                    removed.append(letter.id)
        return removed

    @contextmanager
    def _taken(self) -> Iterator[list[tuple[Any, DeadLetter]]]:
        """All messages with their letters, oldest first; unacknowledged ones go back to the queue."""
        with connected(self._app, alone=True) as connection:
            queue = self._app.amqp.queues[self._name](connection.default_channel)
            messages = []
            for _ in range(queue.queue_declare().message_count):
                if (message := queue.get(no_ack=False, accept=["json"])) is None:
                    break
                messages.append(message)
            try:
                yield [(message, self._open(message)) for message in messages]
            finally:
                for message in messages:
                    if not message.acknowledged:
                        message.requeue()

    def _open(self, message: Any) -> DeadLetter:
        try:
            (text,), _, _ = message.decode()
            return decode(DeadLetter, text)
        except Exception as error:  # show it whatever it is, so that it can be removed
            return _letter(self._queue, _readable(message.body), f"not a dead letter: {error}", None, 1)

    def _make_room(self, connection: Connection) -> None:
        queue = self._app.amqp.queues[self._name](connection.default_channel)
        for _ in range(queue.queue_declare().message_count - MOST_LETTERS + 1):
            queue.get(no_ack=True)
            logger.error("too many dead letters; the oldest is deleted", extra={"queue": self._queue})


def _letter(queue: str, text: str, reason: str, task: str | None, attempts: int) -> DeadLetter:
    return DeadLetter(
        id=uuid.uuid4().hex,
        queue=queue,
        task=task,
        reason=reason,
        attempts=attempts,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        consumer=f"{socket.gethostname()}-{os.getpid()}",
        characters=len(text),
        message=text[:MOST_CHARACTERS],
    )


def _readable(body: object) -> str:
    return body.decode(errors="replace") if isinstance(body, bytes) else str(body)

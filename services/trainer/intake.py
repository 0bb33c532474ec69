"""What the `trajectories` queue brings: into the inbox of its run, or aside with a reason."""

from __future__ import annotations

import json
import logging
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

from kbqa.errors import MessageError
from kbqa.telemetry import Metrics
from kbqa.wire import RolloutReply, decode
from services.trainer.errors import RunNotFoundError
from services.trainer.runs import Runs, State

logger = logging.getLogger(__name__)

_KEPT_CHARACTERS = 10_000  # of a message that is no reply


class Intake:
    """Takes replies; when `take` returns, the reply is on the disk or counted as something else.

    Args:
        dead_letters: file of what cannot be read, one JSON object a line.
    """

    def __init__(self, runs: Runs, metrics: Metrics, dead_letters: Path) -> None:
        self._runs, self._dead_letters = runs, dead_letters
        self._messages = metrics.counter("kbqa_trainer_messages_total")
        self._lock = threading.Lock()

    def sweep(self) -> None:
        """Remove what an earlier process left half written; before the first message."""
        for run in self._runs.all():
            run.inbox.sweep()

    def take(self, message: object) -> None:
        """Body of the task."""
        try:
            outcome = self._take(decode(RolloutReply, message))
        except (MessageError, RunNotFoundError) as error:
            outcome = "dead_letter"
            self._put_aside(message, str(error))
        self._messages.labels(outcome).inc()

    def _take(self, reply: RolloutReply) -> str:
        run = self._runs.get(reply.run)
        # The summary is the last thing that training writes; the state follows when its process has ended.
        if run.summary_path.exists() or run.read().state is State.DONE:
            return "late"
        return "accepted" if run.inbox.accept(reply) else "duplicate"

    def _put_aside(self, message: object, reason: str) -> None:
        logger.error("a message is put aside", extra={"reason": reason, "file": str(self._dead_letters)})
        text = message if isinstance(message, str) else json.dumps(message)
        letter = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "reason": reason,
            "characters": len(text),
            "message": text[:_KEPT_CHARACTERS],
        }
        self._dead_letters.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, self._dead_letters.open("a", encoding="utf-8") as file:
            file.write(json.dumps(letter) + "\n")
            file.flush()
            os.fsync(file.fileno())

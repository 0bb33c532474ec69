"""Moves replies from the queue `trajectories` into the inbox of their run."""

from __future__ import annotations

from kbqa.errors import MessageError, RunNotFoundError
from kbqa.policy_store.durable import NO_ROOM
from kbqa.runs.directory import Runs
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import RolloutReply, decode
from services.consumer import NotNowError


class Intake:
    """Stores replies; when `take` returns, the reply is on disk or counted as late or duplicate."""

    def __init__(self, runs: Runs, metrics: Metrics) -> None:
        self._runs = runs
        self._messages = metrics.counter("kbqa_trainer_messages_total")

    def sweep(self) -> None:
        """Delete incomplete files of an earlier process; call this before the first message."""
        for run in self._runs.all():
            run.inbox.sweep()

    def take(self, message: str) -> None:
        """Store a reply.

        Raises:
            MessageError: it is not a reply, or its run is unknown.
            NotNowError: the disk has no room for it.
        """
        try:
            outcome = self._take(decode(RolloutReply, message), message)
        except (MessageError, RunNotFoundError) as error:
            self._messages.labels("dead_letter").inc()
            raise MessageError(str(error)) from error
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise NotNowError(f"a reply cannot be stored: {error}") from error
        self._messages.labels(outcome).inc()

    def _take(self, reply: RolloutReply, message: str) -> str:
        run = self._runs.get(reply.run)
        if run.summary_path.exists():  # training writes it last
            return "late"
        return "accepted" if run.inbox.accept(reply, message) else "duplicate"

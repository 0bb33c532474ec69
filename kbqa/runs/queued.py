"""Rollouts by workers, over queues. Each reply is delivered once, whatever is lost in transit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial

from kbqa.errors import MessageError, QueueUnavailableError
from kbqa.runs.inbox import Inbox
from kbqa.wire import RolloutReply, RolloutRequest

logger = logging.getLogger(__name__)

Send = Callable[[RolloutRequest], None]

_LONGEST_FACTOR = 4  # the deadline doubles with each attempt, up to that
_IGNORED = 5  # times that a request may go unanswered while others are answered
_BROKER_PAUSE_S = (0.5, 10.0)
_POLL_S = 0.02  # shortest time between two looks into the inbox, in seconds
# Looking takes longer the more replies lie there, up to all those since the last checkpoint. It takes at most
# one part in so many of the time.
_LOOK_SHARE = 10


@dataclass(slots=True)
class _Outstanding:
    """A request on its way.

    Attributes:
        overdue_at: time at which it is sent again.
        attempts: how often it was sent.
        ignored: attempts without a reply, while other requests got one.
        answers: number of replies that had arrived at the last attempt.
    """

    request: RolloutRequest
    overdue_at: float
    attempts: int = 0
    ignored: int = 0
    answers: int = 0


class QueuedSource:
    """Asks rollout workers, whose replies come into a run's inbox.

    Args:
        send: puts a request into the queue, or raises QueueUnavailableError.
    """

    def __init__(self, send: Send, inbox: Inbox) -> None:
        self._send, self._inbox = send, inbox

    def open(self, kind: str, *, spent: Callable[[str], bool], deadline_s: float) -> QueuedRollouts:
        return QueuedRollouts(kind, self._send, self._inbox, spent=spent, deadline_s=deadline_s)

    def close(self) -> None:
        self._inbox.discard(self._inbox.ids())


class QueuedRollouts:
    """The port `Rollouts` over a queue of requests and an inbox of replies.

    Args:
        send: puts a request into the queue, or raises QueueUnavailableError.
        spent: whether an id that is not outstanding will never be asked for, or again; its
            answer is removed.
        deadline_s: an unanswered request is sent again after that, under its id.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        kind: str,
        send: Send,
        inbox: Inbox,
        *,
        spent: Callable[[str], bool],
        deadline_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._kind, self._send, self._inbox = kind, send, inbox
        self._spent, self._deadline_s, self._clock = spent, deadline_s, clock
        self._outstanding: dict[str, _Outstanding] = {}
        self._fetched: set[str] = set()
        self._lock = threading.Lock()  # of `_fetched` and its files
        self._answers = 0
        self._look_at = 0.0  # time.monotonic()
        self._blocked_until = 0.0
        self._pause_s = _BROKER_PAUSE_S[0]
        self._resent = self._renewed = self._duplicates = 0

    @property
    def counters(self) -> dict[str, int]:
        return {"resent": self._resent, "renewed": self._renewed, "duplicates": self._duplicates}

    def ask(self, request: RolloutRequest) -> None:
        """Request a group, unless its reply is already in the inbox from before a restart."""
        entry = _Outstanding(request, overdue_at=self._clock())
        self._outstanding[request.request_id] = entry
        if request.request_id not in self._inbox:
            self._dispatch(entry)

    def ask_anew(self, request: RolloutRequest, after_s: float = 0.0) -> None:
        self._fetched.discard(request.request_id)
        self._inbox.discard([request.request_id])
        self._renewed += 1
        self._outstanding[request.request_id] = entry = _Outstanding(request, self._clock() + after_s)
        if not after_s:
            self._dispatch(entry)

    def receive(self, wait_s: float) -> list[RolloutReply]:
        """As `Rollouts.receive`; sends again what is overdue."""
        deadline = time.monotonic() + wait_s
        replies: list[RolloutReply] = []
        while not replies:
            if wait_s <= 0 or time.monotonic() >= self._look_at:
                replies = self._look()
            if replies or (left_s := deadline - time.monotonic()) <= 0:
                break
            time.sleep(min(_POLL_S, left_s))
        self._answers += len(replies)
        self._send_again()
        return replies

    def _look(self) -> list[RolloutReply]:
        with self._lock:
            return self._arrived()

    def _arrived(self) -> list[RolloutReply]:
        replies, began = [], time.monotonic()
        ids = self._inbox.ids()
        self._look_at = began + _LOOK_SHARE * (time.monotonic() - began)
        for request_id in ids:
            if not request_id.startswith(self._kind) or request_id in self._fetched:
                continue
            if request_id in self._outstanding:
                reply = self._fetch(request_id)
                if reply is not None:
                    replies.append(reply)
            elif self._spent(request_id):
                self._duplicates += 1
                self._inbox.discard([request_id])
        return replies

    def give_up(self) -> list[str]:
        """Ids that got no reply too often; they are not requested any more."""
        ids = [key for key, entry in self._outstanding.items() if entry.ignored >= _IGNORED]
        for request_id in ids:
            del self._outstanding[request_id]
        return ids

    def release(self) -> Callable[[], None]:
        """As `Rollouts.release`."""
        with self._lock:
            spent = {request_id for request_id in self._fetched if self._spent(request_id)}
        return partial(self._delete, spent)

    def _delete(self, spent: Set[str]) -> None:
        with self._lock:  # in between, a reply would be taken for one that came twice
            self._inbox.discard(spent)
            self._fetched -= spent

    def _fetch(self, request_id: str) -> RolloutReply | None:
        try:
            reply = self._inbox.read(request_id)
        except MessageError as error:
            logger.error("a reply cannot be read; its request is sent again", extra={"reason": str(error)})
            self._inbox.discard([request_id])
            return None
        del self._outstanding[request_id]
        self._fetched.add(request_id)
        return reply

    def _send_again(self) -> None:
        now = self._clock()
        for entry in self._outstanding.values():
            if entry.overdue_at > now or entry.ignored >= _IGNORED:
                continue
            if entry.attempts:
                entry.ignored += self._answers > entry.answers
                self._resent += 1
            self._dispatch(entry)

    def _dispatch(self, entry: _Outstanding) -> None:
        now = self._clock()
        if now < self._blocked_until:
            entry.overdue_at = self._blocked_until
            return
        deadline_s = self._deadline_s * min(2**entry.attempts, _LONGEST_FACTOR)
        try:
            self._send(entry.request.model_copy(update={"sent_at": now, "deadline_s": deadline_s}))
        except QueueUnavailableError as error:
            logger.warning("the broker does not accept a request", extra={"reason": str(error)})
            self._blocked_until = entry.overdue_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _BROKER_PAUSE_S[1])
            return
        self._pause_s = _BROKER_PAUSE_S[0]
        entry.attempts += 1
        entry.answers = self._answers
        entry.overdue_at = now + deadline_s

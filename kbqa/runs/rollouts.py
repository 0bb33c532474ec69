"""The port through which a run has questions played: it asks, and receives.

Two adapters: `kbqa.runs.queued` asks rollout workers over queues, `kbqa.runs.local` plays in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kbqa.wire import RolloutReply, RolloutRequest


class Rollouts(Protocol):
    """Requests of one kind, and their replies: each comes once, in any order."""

    @property
    def counters(self) -> Mapping[str, int]:
        """`resent`: requests sent again; `renewed`: asked anew; `duplicates`: replies that came twice."""
        ...

    def ask(self, request: RolloutRequest) -> None:
        """Have a group or tree played and scored. An id stands for one question, for ever."""
        ...

    def ask_anew(self, request: RolloutRequest) -> None:
        """Have it played again: the reply that was received is of no use."""
        ...

    def receive(self, wait_s: float) -> list[RolloutReply]:
        """New replies to requests that are out; waits that many seconds for one at most."""
        ...

    def give_up(self) -> list[str]:
        """Ids that nobody will answer; they are not asked for any more."""
        ...

    def release(self) -> None:
        """Let go of replies that were received and are spent."""
        ...


class RolloutSource(Protocol):
    """Where a run's rollouts come from."""

    def open(self, kind: str, *, spent: Callable[[str], bool], deadline_s: float) -> Rollouts:
        """Requests of one kind.

        Args:
            kind: first letter of their ids.
            spent: whether an id that is not outstanding will never be asked for, or again.
            deadline_s: how long a request may go unanswered, in seconds.
        """
        ...

    def close(self) -> None:
        """The run is done: let go of everything."""
        ...

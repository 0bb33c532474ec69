"""The port through which a run requests rollouts and receives replies.

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
        """Request that a group or tree is played and scored. An id always stands for the same question."""
        ...

    def ask_anew(self, request: RolloutRequest, after_s: float = 0.0) -> None:
        """Request it again after so many seconds, because the received reply is of no use."""
        ...

    def receive(self, wait_s: float) -> list[RolloutReply]:
        """New replies to outstanding requests; waits at most `wait_s` seconds for one."""
        ...

    def give_up(self) -> list[str]:
        """Ids that will get no reply; they are not requested any more."""
        ...

    def release(self) -> Callable[[], None]:
        """What deletes the received replies that are no longer needed now; any thread may call it."""
        ...


class RolloutSource(Protocol):
    """Where a run's rollouts come from."""

    def open(self, kind: str, *, spent: Callable[[str], bool], deadline_s: float) -> Rollouts:
        """Requests of one kind.

        Args:
            kind: first letter of their ids.
            spent: whether an id that is not outstanding will never be requested (again).
            deadline_s: how long a request may go unanswered, in seconds.
        """
        ...

    def close(self) -> None:
        """The run is done: free everything."""
        ...

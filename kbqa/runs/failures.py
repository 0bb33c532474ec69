"""What a failed rollout says, and what follows from it. Nothing else decides that.

A failure concerns one request, one worker, one policy version or the whole run. A worker cannot tell the
last three apart: the version that it cannot load may be damaged, or its own disk may be. Nor does a failure
show that the request is to blame, as long as its worker, or the judge, answers nothing else. The trainer
therefore asks again, and looks for itself. A run ends only if the trainer finds the same cause, or if all
rollouts have failed for minutes.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kbqa.errors import (
    BaseNotFoundError,
    GraphNotFoundError,
    GraphUnavailableError,
    JudgeUnavailableError,
    NoPolicyError,
    PolicyError,
    PolicyIntegrityError,
    PolicyMismatchError,
    RunError,
)
from kbqa.wire import FailureReason, RolloutFailure, RolloutReply

logger = logging.getLogger(__name__)

_ATTEMPTS = 3  # of a request whose failures are its own
# After so many seconds, another failure of a request counts, even if its worker or the judge has answered
# nothing in between, and may be what is broken.
_PATIENCE_S = {FailureReason.INTERNAL: 60.0, FailureReason.JUDGE_UNAVAILABLE: 3600.0}
_PAUSE_S = (1.0, 60.0)  # first and longest pause before a request is asked again
_SETTLED_S = 300.0  # after so long without any group, the cause is no single worker's
_LOOK_S = 60.0  # between two looks for the same cause; one may read all files of a version
_ANYBODY = ""


class Scope(StrEnum):
    """How far the cause of a failure reaches."""

    REQUEST = "request"
    """Perhaps this question alone: asked again a few times, then given up."""
    WORKER = "worker"
    """The worker, or a service that it needs: asked again until somebody can answer."""
    VERSION = "version"
    """The policy version, or the worker's copy of it."""
    RUN = "run"
    """The run does not fit its graphs or recipe, or the worker is connected to others."""


SCOPES: dict[FailureReason, Scope] = {
    FailureReason.NO_POLICY: Scope.VERSION,
    FailureReason.POLICY_UNAVAILABLE: Scope.WORKER,
    FailureReason.VERSION_REFUSED: Scope.VERSION,
    FailureReason.RECIPE_MISMATCH: Scope.RUN,
    FailureReason.GRAPH_NOT_FOUND: Scope.RUN,
    FailureReason.GRAPH_UNAVAILABLE: Scope.WORKER,
    FailureReason.GRAPH_CHANGED: Scope.RUN,
    FailureReason.JUDGE_UNAVAILABLE: Scope.REQUEST,
    FailureReason.CLOCK_OFF: Scope.WORKER,
    FailureReason.INTERNAL: Scope.REQUEST,
}

# The first class that fits counts.
_REASONS: tuple[tuple[type[Exception], FailureReason], ...] = (
    (NoPolicyError, FailureReason.NO_POLICY),
    (PolicyIntegrityError, FailureReason.VERSION_REFUSED),
    (PolicyMismatchError, FailureReason.VERSION_REFUSED),
    (BaseNotFoundError, FailureReason.VERSION_REFUSED),
    (PolicyError, FailureReason.POLICY_UNAVAILABLE),
    (GraphNotFoundError, FailureReason.GRAPH_NOT_FOUND),
    (GraphUnavailableError, FailureReason.GRAPH_UNAVAILABLE),
    (JudgeUnavailableError, FailureReason.JUDGE_UNAVAILABLE),
)


def reason_of(error: Exception) -> FailureReason:
    """The reason that a worker gives for an error."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), FailureReason.INTERNAL)


class _Failed(NamedTuple):
    """A failure that counted.

    Attributes:
        at: when, in seconds.
        answers: requests that had been answered by then.
    """

    at: float
    answers: int


@dataclass(slots=True)
class _Asked:
    """A request that has failed and has not been answered since.

    Attributes:
        own: failures whose cause may be the request.
        last: the last one of them by each worker, or of the judge ("").
    """

    failures: int = 0
    own: int = 0
    last: dict[str, _Failed] = field(default_factory=dict)


class Triage:
    """Decides about failed rollouts, one after another.

    Args:
        look: looks whether the cause of a failure exists for the trainer, too; raises `RunError` if it does.
        hopeless: so many requests given up in a row end the run.
        deadline_s: how long a request may go unanswered, in seconds.
        clock: seconds.
    """

    def __init__(
        self,
        look: Callable[[RolloutFailure], None],
        hopeless: int,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._hopeless, self._clock = look, hopeless, clock
        self._settled_s = max(_SETTLED_S, 2 * deadline_s)
        self._asked: defaultdict[str, _Asked] = defaultdict(_Asked)
        self._answers: Counter[str] = Counter()  # by worker; "" is any
        self._given_up = 0
        self._since: float | None = None  # when version or run was first blamed since the last group
        self._look_at: dict[FailureReason, float] = {}

    def answered(self, reply: RolloutReply) -> None:
        """A group came in."""
        self._given_up, self._since = 0, None
        self._asked.pop(reply.request_id, None)
        self._answers.update((reply.worker, _ANYBODY))

    def failed(self, reply: RolloutReply) -> float | None:
        """A failure came in.

        Returns:
            Seconds after which the request is to be asked again; None if it is to be given up.

        Raises:
            RunError: the run cannot go on, whoever is asked.
        """
        failure, request_id = reply.failure, reply.request_id
        assert failure is not None
        scope = SCOPES[failure.reason]
        logger.warning(
            "a rollout failed",
            extra={"request": request_id, "worker": reply.worker, "scope": scope, **failure.model_dump()},
        )
        if scope in (Scope.VERSION, Scope.RUN):
            self._blame(failure)
        asked = self._asked[request_id]
        asked.failures += 1
        if scope is Scope.REQUEST:
            self._count(asked, failure.reason, reply.worker)
        if asked.own >= _ATTEMPTS:
            self._give_up(request_id, failure)
            return None
        first, longest = _PAUSE_S
        bound = min(first * 2.0 ** (asked.failures - 1), longest)
        return random.uniform(bound / 2, bound)

    def _count(self, asked: _Asked, reason: FailureReason, worker: str) -> None:
        """Count a failure as the request's own, unless its worker, or the judge, fails at everything now."""
        whose = _ANYBODY if reason is FailureReason.JUDGE_UNAVAILABLE else worker
        now, answers, last = self._clock(), self._answers[whose], asked.last.get(whose)
        if last is None or answers > last.answers or now - last.at >= _PATIENCE_S[reason]:
            asked.own += 1
            asked.last[whose] = _Failed(now, answers)

    def _give_up(self, request_id: str, failure: RolloutFailure) -> None:
        del self._asked[request_id]
        self._given_up += 1
        if self._given_up >= self._hopeless:
            raise RunError(f"{self._given_up} rollouts failed in a row ({failure.reason}: {failure.detail})")

    def _blame(self, failure: RolloutFailure) -> None:
        now = self._clock()
        if now >= self._look_at.get(failure.reason, now):
            self._look(failure)
            self._look_at[failure.reason] = now + _LOOK_S
        if self._since is None:
            self._since = now
        elif now - self._since > self._settled_s:
            raise RunError(
                f"all rollouts have failed for {now - self._since:.0f} s "
                f"({failure.reason}: {failure.detail}), although the trainer finds version and graphs "
                "intact: check that the workers have the trainer's policy store, kg_server and release, then "
                "resume the run"
            )

"""Pacing: which groups the trainer requests, accepts and drops. Nothing else sets the pace.

    while not over:
        groups = pacing.collect(stop)          # of one optimiser step
        …                                      # train on them
        pacing.close_step(outcomes)            # settle them
        pacing.changed()                       # the weights, if they were trained
        pacing.publish(version)                # if workers need them

At most `max_in_flight` groups are requested and not settled. A group whose oldest turn is
more than `max_staleness` versions old is dropped when it arrives. A group that was written by
weights that a restore has undone is requested again, so that no question is skipped because
a process died.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kbqa.curricula.course import Questions
from kbqa.policy_store import PolicyVersion
from kbqa.recipes.learning import ScheduleSection
from kbqa.runs.failures import Triage
from kbqa.runs.ledger import GroupOutcome, History, Ledger
from kbqa.runs.rollouts import RolloutSource
from kbqa.trajectory import Question
from kbqa.tree import ScoredRollout
from kbqa.wire import RolloutFailure, RolloutReply, RolloutRequest, Timings

logger = logging.getLogger(__name__)

TRAINING_IDS = "t"
"""First letter of the ids of training requests."""

_POLL_S = 0.02  # seconds to wait for a reply
_HOPELESS_STEPS = 3  # steps' worth of groups that may be given up in a row

MakeRequest = Callable[[str, Question, int], RolloutRequest]
"""A training request from its id, its question and the least number of a policy version."""


@dataclass(frozen=True, slots=True)
class Received:
    """A group, or the groups of a tree, to train on.

    Attributes:
        staleness: versions between its oldest turn and the current weights.
        timings: where its worker spent the time.
        sampled_tokens: see `RolloutReply`.
        age_s: since it came in.
    """

    request_id: str
    group: ScoredRollout
    staleness: int
    timings: Timings
    sampled_tokens: int
    age_s: float


@dataclass(frozen=True, slots=True)
class _Arrival:
    group: ScoredRollout
    timings: Timings
    sampled_tokens: int
    at: float  # time.monotonic()


class Pacing:
    """The groups of one optimiser step after another.

    Request ids are the positions in the deck. After a restore, the same question is therefore
    requested under the same id, and an earlier reply still counts.

    Args:
        deck: the question of every position.
        source: plays them.
        fault: why the trained model cannot learn from a rollout; None if it can. One that it cannot learn
            from would end the training process, now and after every restart; it counts as a failure.
        version: the version that the run begins with.
        look: see `Triage`.
    """

    def __init__(
        self,
        schedule: ScheduleSection,
        deck: Questions,
        make_request: MakeRequest,
        source: RolloutSource,
        fault: Callable[[ScoredRollout], str | None],
        version: PolicyVersion,
        look: Callable[[RolloutFailure], None],
    ) -> None:
        self._schedule, self._deck, self._make_request = schedule, deck, make_request
        self._fault = fault
        self._rollouts = source.open(
            TRAINING_IDS,
            spent=lambda request_id: self.ledger.is_settled(request_id),
            deadline_s=schedule.request_deadline_s,
        )
        self.ledger = Ledger()
        self.history = History()
        self.history.advance(version.id)
        self.step = 0
        self._number = version.number
        self._position = 0
        self._waiting: dict[str, _Arrival] = {}  # arrived, not settled yet
        self._current: tuple[str, ...] = ()  # those of the current step
        self._triage = Triage(
            look, _HOPELESS_STEPS * schedule.questions_per_step, schedule.request_deadline_s
        )

    def collect(self, check: Callable[[], None]) -> list[Received]:
        """Wait for the groups of the next step; they come in the order in which they were asked for.

        Args:
            check: called while waiting; whatever it raises ends the wait.

        Raises:
            RunError: rollouts fail for a reason that waiting does not cure.
        """
        while True:
            check()
            self.refill()
            for reply in self._rollouts.receive(_POLL_S):
                self._take(self._checked(reply))
            for request_id in self._rollouts.give_up():
                logger.error("a request was never answered", extra={"request": request_id})
                self.ledger.settle(request_id, GroupOutcome.UNANSWERED, self.step)
            fresh = self._fresh()
            if len(fresh) >= self._schedule.questions_per_step:
                chosen = fresh[: self._schedule.questions_per_step]
                self._current = tuple(received.request_id for received in chosen)
                return chosen

    def refill(self) -> None:
        """Request groups until `max_in_flight` are outstanding, not counting those of the current step."""
        while len(self.ledger.in_flight) - len(self._current) < self._schedule.max_in_flight:
            request_id = f"{TRAINING_IDS}{self._position:07d}"
            self.ledger.ask(request_id)
            self._position += 1
            self._ask(request_id)

    def close_step(self, outcomes: Mapping[str, GroupOutcome]) -> None:
        """Settle the groups of the current step, and end it.

        Args:
            outcomes: by request id, for every group that `collect` returned.
        """
        self.step += 1
        for request_id in self._current:
            self._settle(request_id, outcomes[request_id])
        self._current = ()

    def publish(self, version: PolicyVersion) -> None:
        """`version` holds the current weights; requests from now on need at least that one."""
        self.history.republish(version.id)
        self._number = version.number

    def changed(self) -> None:
        """The weights have changed; `publish` need not follow."""
        self.history.advance_unpublished()

    def end(self) -> None:
        """Drop whatever is still in flight; the run is over."""
        for request_id in self.ledger.in_flight:
            self._settle(request_id, GroupOutcome.RUN_ENDED)

    def release(self) -> Callable[[], None]:
        """What deletes the replies that `to_json()` settles; to be called once it has been written."""
        return self._rollouts.release()

    @property
    def position(self) -> int:
        """The first position of the deck that has not been requested yet."""
        return self._position

    @property
    def counters(self) -> Mapping[str, int]:
        """See `Rollouts.counters`."""
        return self._rollouts.counters

    def to_json(self) -> dict[str, Any]:
        """Everything that a checkpoint needs, between two steps."""
        return {
            "step": self.step,
            "position": self._position,
            "ledger": self.ledger.to_json(),
            "history": self.history.to_json(),
        }

    def restore(self, values: Mapping[str, Any], version: PolicyVersion) -> None:
        """Go on from a checkpoint, whose weights were published again as `version`."""
        self.step, self._position = values["step"], values["position"]
        self.ledger = Ledger.from_json(values["ledger"])
        self.history = History(values["history"])
        self.history.republish(version.id)
        self._number = version.number
        for request_id in self.ledger.in_flight:
            self._ask(request_id)

    def _ask(self, request_id: str) -> None:
        self._rollouts.ask(self._request(request_id))

    def _request(self, request_id: str) -> RolloutRequest:
        question = self._deck[position_of(request_id)]
        return self._make_request(request_id, question, self._number)

    def _checked(self, reply: RolloutReply) -> RolloutReply:
        fault = None if reply.rollout is None else self._fault(reply.rollout)
        return reply if fault is None else reply.refused(fault)

    def _take(self, reply: RolloutReply) -> None:
        if reply.rollout is not None:
            self._triage.answered(reply)
            self._waiting[reply.request_id] = _Arrival(
                reply.rollout, reply.timings, reply.sampled_tokens, time.monotonic()
            )
            return
        pause_s = self._triage.failed(reply)
        if pause_s is None:
            self._settle(reply.request_id, GroupOutcome.FAILED)
        else:
            self._rollouts.ask_anew(self._request(reply.request_id), pause_s)

    def _fresh(self) -> list[Received]:
        """The groups that may be trained on now; others are dropped, or asked for again."""
        fresh = []
        for request_id, arrival in sorted(self._waiting.items()):
            staleness = self.history.staleness(arrival.group.policy_versions)
            if staleness is None:
                del self._waiting[request_id]
                self._rollouts.ask_anew(self._request(request_id))
            elif staleness > self._schedule.max_staleness:
                self._settle(request_id, GroupOutcome.STALE)
            else:
                age_s = time.monotonic() - arrival.at
                fresh.append(
                    Received(
                        request_id,
                        arrival.group,
                        staleness,
                        arrival.timings,
                        arrival.sampled_tokens,
                        age_s,
                    )
                )
        return fresh

    def _settle(self, request_id: str, outcome: GroupOutcome) -> None:
        self.ledger.settle(request_id, outcome, self.step)
        self._waiting.pop(request_id, None)


def position_of(request_id: str) -> int:
    """The position of the deck that a training request asks for."""
    return int(request_id.removeprefix(TRAINING_IDS))

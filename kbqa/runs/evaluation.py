"""Evaluation of a published version through the same rollouts as training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbqa.confidence import Calibration, is_right, log_likelihood
from kbqa.curves import episode_means, f1_by
from kbqa.errors import RunError
from kbqa.policy_store import PolicyVersion
from kbqa.runs.rollouts import RolloutSource
from kbqa.trajectory import Group, Question, RewardedTrajectory
from kbqa.wire import RolloutReply, RolloutRequest

logger = logging.getLogger(__name__)

EVALUATION_IDS = "e"
"""First letter of the ids of evaluation requests."""

_POLL_S = 0.02  # seconds to wait for a reply
_ATTEMPTS = 3  # how often a question is asked again after a failed rollout

MakeRequest = Callable[[str, Question, int], RolloutRequest]
"""An evaluation request from its id, its question and the number of the policy version."""


@dataclass(frozen=True, slots=True)
class VersionEvaluation:
    """How well a version answers, one greedy episode a question.

    Attributes:
        means: see `episode_means`; `f1` is among them.
        f1_by_hops: by the length of the gold path.
        f1_by_part: by the part of a mixture; empty if there are not several.
        calibration: of the version on these questions; None if they are too few.
    """

    version: str
    split: str
    questions: int
    means: dict[str, float]
    f1_by_hops: dict[str, float]
    f1_by_part: dict[str, float]
    calibration: Calibration | None = None

    @property
    def f1(self) -> float:
        return self.means["f1"]

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        for name in ("f1_by_part", "calibration"):
            if not values[name]:
                del values[name]
        return {**values.pop("means"), **values}


class Evaluator:
    """Evaluates versions, one at a time.

    Args:
        max_in_flight: requests that are out at a time.
        check: called while waiting; whatever it raises ends the wait.
    """

    def __init__(
        self,
        make_request: MakeRequest,
        source: RolloutSource,
        *,
        max_in_flight: int,
        deadline_s: float,
        check: Callable[[], None],
    ) -> None:
        self._make_request, self._max_in_flight, self._check = make_request, max_in_flight, check
        # An unexpected reply belongs to an evaluation that is over or was interrupted.
        self._rollouts = source.open(EVALUATION_IDS, spent=lambda _: True, deadline_s=deadline_s)

    def evaluate(
        self, version: PolicyVersion, questions: Sequence[Question], split: str
    ) -> VersionEvaluation:
        """Answer questions greedily with `version`, which must be the run's newest.

        Raises:
            RunError: a question could not be answered, or was answered by another version.
        """
        groups: list[Group] = []
        attempts = dict.fromkeys(range(len(questions)), 0)
        waiting: dict[str, int] = {}
        upcoming = list(range(len(questions)))
        while len(groups) < len(questions):
            self._check()
            while upcoming and len(waiting) < self._max_in_flight:
                index = upcoming.pop(0)
                attempts[index] += 1
                request_id = f"{EVALUATION_IDS}-{version.id}-{split}-{index:05d}-{attempts[index]}"
                waiting[request_id] = index
                self._rollouts.ask(self._make_request(request_id, questions[index], version.number))
            for reply in self._rollouts.receive(_POLL_S):
                index = waiting.pop(reply.request_id)
                if reply.group is not None:
                    groups.append(_written_by(version, reply.group))
                elif attempts[index] < _ATTEMPTS:
                    upcoming.append(index)
                else:
                    raise RunError(f"{split} question {questions[index].id}: {_explain(reply)}")
            for request_id in self._rollouts.give_up():
                raise RunError(f"{split} question {questions[waiting[request_id]].id} was never answered")
            self._rollouts.release()()
        hops = {question.id: str(question.hops or "") for question in questions}
        parts = {question.id: question.part for question in questions}
        members = [member for group in groups for member in group.members]
        return VersionEvaluation(
            version.id,
            split,
            len(groups),
            means=episode_means(members),
            f1_by_hops=f1_by(groups, hops),
            f1_by_part=f1_by(groups, parts) if len(set(parts.values())) > 1 else {},
            calibration=_calibration(members),
        )


def _calibration(members: Sequence[RewardedTrajectory]) -> Calibration | None:
    """How the likelihood of episodes says whether their answers are exactly the gold answers."""
    scored = [
        (likelihood, is_right(member.components["f1"]))
        for member in members
        if member.trajectory.answers and (likelihood := log_likelihood(member.trajectory)) is not None
    ]
    return Calibration.fit([likelihood for likelihood, _ in scored], [right for _, right in scored])


def _written_by(version: PolicyVersion, group: Group) -> Group:
    if group.policy_versions - {version.id}:
        writers = ", ".join(sorted(group.policy_versions))
        raise RunError(f"an evaluation of {version.id} was answered by other versions: {writers}")
    return group


def _explain(reply: RolloutReply) -> str:
    assert reply.failure is not None
    return f"{reply.failure.reason}: {reply.failure.detail}"

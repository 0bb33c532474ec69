"""Evaluation of a published version through the same rollouts as training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from kbqa.confidence import Calibration, choices_of, is_right
from kbqa.curves import episode_means, f1_by
from kbqa.errors import RunError
from kbqa.policy_store import PolicyVersion
from kbqa.runs.failures import Triage
from kbqa.runs.rollouts import RolloutSource
from kbqa.trajectory import Group, Question
from kbqa.wire import RolloutFailure, RolloutRequest

logger = logging.getLogger(__name__)

EVALUATION_IDS = "e"
"""First letter of the ids of evaluation requests."""

_POLL_S = 0.02  # seconds to wait for a reply
_HOPELESS = 1  # no question may be left out

MakeRequest = Callable[[str, Question, int], RolloutRequest]
"""An evaluation request from its id, its question and the number of the policy version."""


@dataclass(frozen=True, slots=True)
class VersionEvaluation:
    """How well a version answers, one greedy episode a question.

    Attributes:
        means: see `episode_means`; `f1` is among them.
        f1_by_hops: by the length of the gold path.
        f1_by_part: by the part of a mixture; empty if there are not several.
        calibration: of the version on these questions; None if they are too few. Those that were made from
            a graph do not count: a policy that has learned to read made ones is sure of them, and of people's
            less rightly so.
        groups: of one episode each, in the order of the questions.
    """

    version: str
    split: str
    questions: int
    means: dict[str, float]
    f1_by_hops: dict[str, float]
    f1_by_part: dict[str, float]
    calibration: Calibration | None = None
    groups: tuple[Group, ...] = ()

    @property
    def f1(self) -> float:
        return self.means["f1"]

    def to_json(self) -> dict[str, Any]:
        """The record of the evaluation, without its episodes."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        del values["groups"]
        values["calibration"] = self.calibration and asdict(self.calibration)
        for name in ("f1_by_part", "calibration"):
            if not values[name]:
                del values[name]
        return {**values.pop("means"), **values}


class Evaluator:
    """Evaluates versions, one at a time.

    Args:
        max_in_flight: requests that are out at a time.
        look: see `Triage`.
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
        look: Callable[[RolloutFailure], None],
    ) -> None:
        self._make_request, self._max_in_flight, self._check = make_request, max_in_flight, check
        self._look, self._deadline_s = look, deadline_s
        # An unexpected reply belongs to an evaluation that is over or was interrupted.
        self._rollouts = source.open(EVALUATION_IDS, spent=lambda _: True, deadline_s=deadline_s)

    def evaluate(
        self, version: PolicyVersion, questions: Sequence[Question], split: str
    ) -> VersionEvaluation:
        """Answer questions greedily with `version`, which must be the run's newest.

        A question whose worker fails is asked again until one can answer it.

        Raises:
            RunError: a question could not be answered, or was answered by another version.
        """
        answered: dict[int, Group] = {}
        triage = Triage(self._look, _HOPELESS, self._deadline_s)
        waiting: dict[str, int] = {}
        upcoming = list(range(len(questions)))
        while len(answered) < len(questions):
            self._check()
            while upcoming and len(waiting) < self._max_in_flight:
                index = upcoming.pop(0)
                request_id = f"{EVALUATION_IDS}-{version.id}-{split}-{index:05d}"
                waiting[request_id] = index
                self._rollouts.ask(self._make_request(request_id, questions[index], version.number))
            for reply in self._rollouts.receive(_POLL_S):
                question = questions[waiting[reply.request_id]]
                if reply.group is not None:
                    triage.answered(reply)
                    answered[waiting.pop(reply.request_id)] = _written_by(version, reply.group)
                    continue
                try:
                    pause_s = triage.failed(reply)
                except RunError as error:
                    raise RunError(f"{split} question {question.id}: {error}") from error
                assert pause_s is not None, "giving up a single question ends the evaluation"
                self._rollouts.ask_anew(
                    self._make_request(reply.request_id, question, version.number), pause_s
                )
            for request_id in self._rollouts.give_up():
                raise RunError(f"{split} question {questions[waiting[request_id]].id} was never answered")
            self._rollouts.release()()
        hops = {question.id: str(question.hops or "") for question in questions}
        parts = {question.id: question.part for question in questions}
        groups = [answered[index] for index in range(len(questions))]
        members = [member for group in groups for member in group.members]
        return VersionEvaluation(
            version.id,
            split,
            len(groups),
            means=episode_means(members),
            f1_by_hops=f1_by(groups, hops),
            f1_by_part=f1_by(groups, parts) if len(set(parts.values())) > 1 else {},
            calibration=_calibration(
                group for question, group in zip(questions, groups, strict=True) if not question.is_made
            ),
            groups=tuple(groups),
        )


def _calibration(groups: Iterable[Group]) -> Calibration | None:
    """How the choices of episodes say whether their answers are exactly the gold answers."""
    scored = [
        (choices, is_right(member.components["f1"]))
        for group in groups
        for member in group.members
        if member.trajectory.answers and (choices := choices_of(member.trajectory)) is not None
    ]
    return Calibration.fit([choices for choices, _ in scored], [right for _, right in scored])


def _written_by(version: PolicyVersion, group: Group) -> Group:
    if group.policy_versions - {version.id}:
        writers = ", ".join(sorted(group.policy_versions))
        raise RunError(f"an evaluation of {version.id} was answered by other versions: {writers}")
    return group

"""Requests and replies made by hand, and a queue that takes them."""

from __future__ import annotations

from kbqa.errors import QueueUnavailableError
from kbqa.trajectory import Group, Question, RewardedTrajectory, Status, Trajectory, Turn
from kbqa.wire import FailureReason, Purpose, RolloutFailure, RolloutReply, RolloutRequest

QUESTIONS = tuple(Question(f"q{n}", f"Who is {n}?", ("Ann",), ("Bob",), "world") for n in range(5))


def make_request(request_id: str, question: Question, number: int) -> RolloutRequest:
    return RolloutRequest(
        run="r1",
        request_id=request_id,
        purpose=Purpose.TRAIN,
        question=question,
        recipe_digest="0" * 64,
        min_policy_version=number,
        n=2,
        temperature=1.0,
        seed=1,
        sent_at=0.0,
        deadline_s=10.0,
    )


def make_reply(
    request_id: str,
    *versions: str,
    failure: FailureReason | None = None,
    outcomes=(0.0, 1.0),
    worker: str = "w",
) -> RolloutReply:
    """A group whose trajectories have one turn by each of `versions`, or a failure."""
    turns = tuple(
        Turn(1 + i, 2 + i, (-0.5,), "x", Status.OK, policy_version=version)
        for i, version in enumerate(versions)
    )
    trajectory = Trajectory(tuple(range(1 + len(turns))), turns, Status.ANSWERED)
    members = tuple(
        RewardedTrajectory(trajectory, (0.0,) * len(turns), outcome, {"f1": outcome}) for outcome in outcomes
    )
    return RolloutReply(
        run="r1",
        request_id=request_id,
        purpose=Purpose.TRAIN,
        group=None if failure else Group(request_id, QUESTIONS[0], members),
        failure=RolloutFailure(reason=failure, detail="why") if failure else None,
        worker=worker,
    )


class Clock:
    """Seconds since the epoch, as the test has them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Queue:
    """Takes what is sent, unless it is down."""

    def __init__(self) -> None:
        self.sent: list[RolloutRequest] = []
        self.down = False
        self.attempts = 0

    def __call__(self, request: RolloutRequest) -> None:
        self.attempts += 1
        if self.down:
            raise QueueUnavailableError("down")
        self.sent.append(request)

    def take_ids(self) -> list[str]:
        ids = [request.request_id for request in self.sent]
        self.sent.clear()
        return ids

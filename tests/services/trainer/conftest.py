"""What the trainer's tests share: requests and replies made by hand, and runs over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from kbqa.errors import QueueUnavailableError
from kbqa.recipes.learning import ScheduleSection
from kbqa.trajectory import Group, Question, RewardedTrajectory, Status, Trajectory, Turn
from kbqa.wire import Failure, FailureReason, Purpose, RolloutReply, RolloutRequest
from services.trainer.inbox import Inbox

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
    request_id: str, *versions: str, failure: FailureReason | None = None, outcomes=(0.0, 1.0)
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
        failure=Failure(reason=failure, detail="why") if failure else None,
        worker="w",
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

    def __call__(self, request: RolloutRequest) -> None:
        if self.down:
            raise QueueUnavailableError("down")
        self.sent.append(request)

    def take_ids(self) -> list[str]:
        ids = [request.request_id for request in self.sent]
        self.sent.clear()
        return ids


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


@pytest.fixture
def schedule() -> ScheduleSection:
    return ScheduleSection(
        steps=4,
        questions_per_step=2,
        max_in_flight=4,
        max_staleness=1,
        request_deadline_s=10.0,
        checkpoint_every=2,
        validate_every=2,
    )


class Client:
    """Runs of a trainer, over HTTP."""

    def __init__(self, trainer) -> None:
        self.trainer = trainer
        self.http = httpx.Client(base_url=trainer.url, timeout=30)

    def start(self, recipe: dict[str, object], **body: object) -> str:
        body = {"dataset": "world", "recipe": recipe, "limits": {"validation": 2, "test": 3}, **body}
        response = self.http.post("/v1/runs", json=body)
        assert response.status_code == 201, response.text
        return response.json()["id"]

    def view(self, run: str) -> dict:
        return self.http.get(f"/v1/runs/{run}").json()

    def wait(self, run: str, reached: Callable[[dict], bool], timeout_s: float = 60.0) -> dict:
        """The run's view as soon as it is as it should be."""
        deadline = time.monotonic() + timeout_s
        while not reached(view := self.view(run)):
            brief = {key: view[key] for key in ("state", "phase", "step", "groups", "error", "restarts")}
            if view["state"] == "failed" or time.monotonic() > deadline:
                log = self.trainer.home / "runs" / run / "train.log"
                raise AssertionError(f"{brief} {log.read_text()[-3000:] if log.exists() else ''}")
            time.sleep(0.05)
        return view


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """`client(trainer)` makes a client."""
    clients: list[Client] = []

    def make(trainer) -> Client:
        clients.append(Client(trainer))
        return clients[-1]

    yield make
    for made in clients:
        made.http.close()

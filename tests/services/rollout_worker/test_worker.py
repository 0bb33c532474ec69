"""The worker process: takes requests from the queue, answers them, drains, and cannot be poisoned."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx
import pytest
import redis

from kbqa.wire import (
    DELIVER_TASK,
    ROLL_OUT_TASK,
    ROLLOUTS,
    TRAJECTORIES,
    DeadLetter,
    RolloutReply,
    decode,
    encode,
)
from services.broker import create_celery, send
from services.dead_letters import DeadLetters


class Queues:
    """The test's end of both queues."""

    def __init__(self, url: str) -> None:
        self._celery = create_celery("test", url, consumes=ROLLOUTS)
        self._redis = redis.Redis.from_url(url)

    def ask(self, *messages: str) -> None:
        for message in messages:
            send(self._celery, ROLLOUTS, ROLL_OUT_TASK, message)

    def push(self, raw: str) -> None:
        self._redis.lpush(ROLLOUTS, raw)

    def waiting(self) -> int:
        return self._redis.llen(ROLLOUTS)

    def replies(self, count: int, timeout_s: float = 20.0) -> dict[str, RolloutReply]:
        """The next `count` replies by request id."""
        found: dict[str, RolloutReply] = {}
        deadline = time.monotonic() + timeout_s
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} replies"
            with self._celery.connection_for_read() as connection:
                message = connection.default_channel.basic_get(TRAJECTORIES, no_ack=True)
                if message is None:
                    time.sleep(0.05)
                    continue
                assert message.headers["task"] == DELIVER_TASK
                assert message.content_type == "application/json"
                (text,), _, _ = json.loads(message.body)
            reply = decode(RolloutReply, text)
            found[reply.request_id] = reply
        return found

    def letters(self) -> list[DeadLetter]:
        return DeadLetters(self._celery, ROLLOUTS).read()

    def close(self) -> None:
        self._celery.close()
        self._redis.close()


@pytest.fixture
def queues(broker_url) -> Iterator[Queues]:
    queues = Queues(broker_url)
    yield queues
    queues.close()


@pytest.fixture(scope="module")
def worker(start_service):
    return start_service("rollout_worker").ready()


def metric(worker, line: str) -> float:
    text = httpx.get(f"{worker.url}/metrics").text
    return next((float(row.split()[-1]) for row in text.splitlines() if row.startswith(line)), 0.0)


def test_requests_are_answered_side_by_side(worker, queues, publish, make_request) -> None:
    version = publish("many", 4)
    queues.ask(*(encode(make_request("many", f"t{number}", min_policy_version=4)) for number in range(20)))
    replies = queues.replies(20)
    assert sorted(replies) == sorted(f"t{number}" for number in range(20))
    written = {
        turn.policy_version
        for reply in replies.values()
        for member in reply.group.members
        for turn in member.trajectory.turns
    }
    assert written == {version.id}
    assert metric(worker, "kbqa_rollout_policy_version") == 4
    assert metric(worker, 'kbqa_rollout_requests_total{outcome="answered",purpose="train"}') == 20


def test_what_is_no_request_or_too_late_is_dropped_and_the_worker_goes_on(
    worker, queues, publish, make_request
) -> None:
    publish("poison", 1)
    queues.push("not even an envelope")
    late = make_request("poison", "t1", sent_at=time.time() - 60, deadline_s=1.0)
    queues.ask("rubbish", "{}", encode(late), encode(make_request("poison", "t2")))
    assert queues.replies(1).keys() == {"t2"}
    assert metric(worker, 'kbqa_rollout_requests_total{outcome="invalid",purpose="unknown"}') == 2
    assert metric(worker, 'kbqa_rollout_requests_total{outcome="expired",purpose="train"}') == 1
    assert {letter.message for letter in queues.letters()} == {"not even an envelope", "rubbish", "{}"}
    assert httpx.get(f"{worker.url}/readyz").status_code == 200


def test_a_failure_is_answered_too(worker, queues, publish, make_request) -> None:
    publish("fails", 1)
    queues.ask(encode(make_request("fails", "t1", recipe_digest="0" * 64)))
    assert queues.replies(1)["t1"].failure.reason == "recipe_mismatch"


def test_sigterm_finishes_what_was_begun_and_leaves_the_rest(
    start_service, worker, queues, publish, make_request, broker_url
) -> None:
    publish("drain", 1)
    queues.ask(*(encode(make_request("drain", f"t{number}", n=8)) for number in range(48)))
    deadline = time.monotonic() + 10
    while metric(worker, "kbqa_rollout_requests_running") < 16:
        assert time.monotonic() < deadline
    assert worker.terminate() == 0
    answered = 48 - queues.waiting()
    assert 16 <= answered < 48
    assert len(queues.replies(answered)) == answered
    worker.start_again()
    worker.ready()
    assert len(queues.replies(48 - answered)) == 48 - answered


def test_without_kg_server_it_runs_but_is_not_ready(start_service) -> None:
    lonely = start_service("rollout_worker", KBQA_KG_SERVER_URL="http://127.0.0.1:1")
    deadline = time.monotonic() + 30
    while True:
        try:
            response = httpx.get(f"{lonely.url}/readyz")
            break
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert response.status_code == 503
    assert "kg_server" in response.json()["detail"]
    assert httpx.get(f"{lonely.url}/healthz").status_code == 200
    lonely.kill()

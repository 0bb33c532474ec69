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
from tests.services.queues import wait_until

PATIENCE_S = 120  # with a busy machine
AT_A_TIME = 32


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

    def replies(self, count: int, timeout_s: float = PATIENCE_S) -> dict[str, RolloutReply]:
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
    patient = {"DRAIN_S": PATIENCE_S, "POLICY_WAIT_S": PATIENCE_S, "CONCURRENCY": AT_A_TIME}
    return start_service(
        "rollout_worker", **{f"KBQA_ROLLOUT_WORKER_{name}": str(value) for name, value in patient.items()}
    ).ready()


def metric(worker, line: str) -> float:
    text = httpx.get(f"{worker.url}/metrics", timeout=60).text
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
    assert httpx.get(f"{worker.url}/readyz", timeout=60).status_code == 200


def test_a_worker_answers_a_failure_too_and_leaves_requests_to_others_for_a_while(
    worker, queues, publish, make_request
) -> None:
    def stands_back() -> bool:
        return metric(worker, "kbqa_rollout_standing_back") == 1

    def readiness() -> str:
        return httpx.get(f"{worker.url}/readyz", timeout=60).text

    publish("fails", 1)
    for attempt in range(10):
        queues.ask(encode(make_request("fails", f"bad{attempt}", recipe_digest="0" * 64)))
        assert queues.replies(1)[f"bad{attempt}"].failure.reason == "recipe_mismatch"
        wait_until(lambda: "takes no requests" in readiness() or not stands_back(), PATIENCE_S)
        said = readiness()
        queues.ask(encode(make_request("fails", f"good{attempt}", deadline_s=600.0)))
        time.sleep(0.2)
        waiting = queues.waiting()
        if stands_back():  # else this machine is so slow that the pause was over before anybody looked
            break
        queues.replies(1)
    assert "takes no requests for another" in said
    assert waiting == 1
    assert queues.replies(1).keys() == {f"good{attempt}"}


def test_sigterm_finishes_what_was_begun_and_leaves_the_rest(
    start_service, worker, queues, publish, make_request, broker_url
) -> None:
    # Those that were begun wait for a version, and so do not end before the worker was told to.
    queues.ask(*(encode(make_request("drain", f"t{n}", deadline_s=600.0)) for n in range(AT_A_TIME + 16)))
    wait_until(lambda: metric(worker, "kbqa_rollout_requests_running") == AT_A_TIME, PATIENCE_S)
    worker.process.terminate()
    wait_until(lambda: "no further messages are taken" in worker.log.read_text(), PATIENCE_S)
    publish("drain", 1)
    assert worker.process.wait(PATIENCE_S) == 0
    assert queues.waiting() == 16
    assert len(queues.replies(AT_A_TIME)) == AT_A_TIME
    worker.start_again()
    worker.ready()
    assert len(queues.replies(16)) == 16


def test_without_kg_server_it_runs_but_is_not_ready(start_service) -> None:
    lonely = start_service("rollout_worker", KBQA_KG_SERVER_URL="http://127.0.0.1:1")
    assert "kg_server" in lonely.unready().json()["detail"]
    assert httpx.get(f"{lonely.url}/healthz").status_code == 200
    lonely.kill()

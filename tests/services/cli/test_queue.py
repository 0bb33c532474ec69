"""`kbqa queue`: over a real Redis."""

from __future__ import annotations

import json

import pytest
import redis

from kbqa.wire import ROLL_OUT_TASK, ROLLOUTS
from services.broker import create_celery, send
from services.dead_letters import DeadLetters


@pytest.fixture
def celery(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    app = create_celery("test", redis_url, consumes=ROLLOUTS)
    yield app
    app.close()


@pytest.fixture
def queue(in_process, redis_url, celery):
    """`queue("list")` runs `kbqa queue list`: its output."""

    def command(*arguments):
        code, output, errors = in_process("queue", *arguments, KBQA_REDIS_URL=redis_url)
        assert (code, errors) == (0, "")
        return output

    return command


@pytest.fixture
def letters(celery):
    letters = DeadLetters(celery, ROLLOUTS)
    letters.bury("first", "bad request", ROLL_OUT_TASK, 1)
    letters.bury("x" * 500, "worse request", ROLL_OUT_TASK, 2)
    return letters.read()


def test_queues_are_counted(queue, letters, celery):
    send(celery, ROLLOUTS, ROLL_OUT_TASK, "waits")
    assert json.loads(queue("list", "--json")) == {
        "rollouts": {"waiting": 1, "taken": 0, "dead": 2},
        "trajectories": {"waiting": 0, "taken": 0, "dead": 0},
    }
    assert "dead letters" in queue("list")


def test_letters_are_shown_with_their_reason(queue, letters):
    output = queue("show", "rollouts")
    assert "bad request" in output
    assert "(500 characters)" in output
    assert output.endswith("2 dead letters are there\n")
    shown = json.loads(queue("show", "rollouts", "--json"))
    assert [letter["id"] for letter in shown] == [letter.id for letter in letters]


def test_letters_are_sent_again_and_removed(queue, letters):
    assert queue("requeue", "rollouts", letters[0].id) == "1 dead letter sent again\n"
    assert json.loads(queue("list", "--json"))["rollouts"] == {"waiting": 1, "taken": 0, "dead": 1}
    assert queue("purge", "rollouts") == "1 dead letter removed\n"
    assert json.loads(queue("list", "--json"))["rollouts"]["dead"] == 0


def test_what_is_not_there_says_what_to_do(in_process, redis_url, tmp_path):
    code, _, errors = in_process("queue", "show", "nonsense", KBQA_REDIS_URL=redis_url)
    assert code == 2
    assert "rollouts and trajectories" in errors
    code, _, errors = in_process("queue", "list", "--broker", "redis://:secret@127.0.0.1:1/0")
    assert code == 2
    assert "redis://:***@127.0.0.1:1/0" in errors


def test_the_redis_of_kbqa_up_is_found(in_process, redis_url, tmp_path):
    code, _, errors = in_process("queue", "list")
    assert code == 2
    assert "KBQA_BROKER_URL" in errors
    (tmp_path / "home" / "redis").mkdir(parents=True)
    (tmp_path / "home" / "redis" / "url").write_text(redis_url)
    assert in_process("queue", "list")[0] == 0

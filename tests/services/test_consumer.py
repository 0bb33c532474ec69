"""No message is lost, none comes for ever, and what cannot be used is put aside with the reason."""

from __future__ import annotations

import base64
import json
import random
import time
from contextlib import suppress

import pytest
import redis
from celery.exceptions import Reject

from kbqa.errors import ConfigurationError, QueueUnavailableError
from services import consumer as consuming
from services.broker import ATTEMPT_HEADER, Outbox, create_celery, require_broker, send
from services.consumer import MOST_ATTEMPTS
from services.dead_letters import MOST_CHARACTERS, MOST_LETTERS, DeadLetters
from tests.services.queues import Broker, Notes, wait_until


@pytest.fixture
def celery(broker_url):
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
    app = create_celery("test", broker_url, consumes="notes")
    yield app
    app.close()


@pytest.fixture
def client(broker_url):
    with redis.Redis.from_url(broker_url) as client:
        yield client


@pytest.fixture
def letters(celery):
    return DeadLetters(celery, "notes")


@pytest.fixture
def notes(broker_url, tmp_path, celery):
    """`notes(drain_s=1)` starts a consumer."""
    started = []

    def start(**settings) -> Notes:
        started.append(Notes(broker_url, tmp_path / f"notes-{len(started)}", **settings))
        return started[-1]

    yield start
    for consumer in started:
        consumer.kill()


def ask(celery, *messages: str, attempt: int = 1) -> None:
    for message in messages:
        send(celery, "notes", "note", message, attempt=attempt)


def test_what_cannot_be_used_is_put_aside_with_the_reason_and_the_rest_goes_on(
    celery, client, letters, notes
) -> None:
    consumer = notes()
    ask(celery, "bad x", "say a")
    send(celery, "notes", "no.such.task", "y")
    celery.send_task("note", args=[{"not": "a string"}], queue="notes")
    celery.send_task("note", args=["z"], queue="notes", serializer="pickle")
    ask(celery, "say b")
    wait_until(lambda: consumer.words == ["a", "b"] and letters.counts()["dead"] == 4)
    found = {letter.message: letter for letter in letters.read()}
    assert found["bad x"].reason == "it is bad"
    assert (found["bad x"].task, found["bad x"].queue, found["bad x"].attempts) == ("note", "notes", 1)
    reasons = " ".join(letter.reason for letter in found.values())
    assert "no.such.task" in reasons
    assert "a string is needed, not dict" in reasons
    assert "pickle" in reasons

    client.lpush("notes", "not even an envelope")
    ask(celery, "say c")
    wait_until(lambda: consumer.words == ["a", "b", "c"] and letters.counts()["dead"] == 5)
    assert letters.read()[-1].message == "not even an envelope"
    wait_until(lambda: client.hlen("notes.unacked") == 0)


def test_a_message_that_fails_is_tried_again_but_not_for_ever(celery, client, letters, notes) -> None:
    consumer = notes()
    ask(celery, "fail x", attempt=MOST_ATTEMPTS - 1)
    ask(celery, "say a")
    wait_until(lambda: letters.counts()["dead"] == 1)
    (letter,) = letters.read()
    assert letter.reason == f"failed {MOST_ATTEMPTS} times, the last time with RuntimeError: no luck"
    assert letter.attempts == MOST_ATTEMPTS
    assert consumer.words == ["a"]


def test_what_a_killed_consumer_had_is_given_to_another_after_the_visibility_timeout(
    celery, client, notes
) -> None:
    first = notes(visibility_timeout_s=1)
    ask(celery, "sleep 0.5 a")
    wait_until(lambda: first.words == ["+a"])
    first.kill()
    assert client.hlen("notes.unacked") == 1
    time.sleep(1.1)
    second = notes(visibility_timeout_s=1)
    wait_until(lambda: second.words == ["+a", "a"])
    wait_until(lambda: client.hlen("notes.unacked") == 0)


def test_a_message_that_kills_its_consumers_is_put_aside(celery, client, letters, notes) -> None:
    ask(celery, "sleep 60 x", attempt=MOST_ATTEMPTS)
    first = notes(visibility_timeout_s=0.5)
    wait_until(lambda: first.words == ["+x"])
    first.kill()
    time.sleep(0.6)
    second = notes(visibility_timeout_s=0.5)
    wait_until(lambda: letters.counts()["dead"] == 1)
    assert "each time its consumer died before it was processed" in letters.read()[0].reason
    assert second.words == []


def test_sigterm_lets_finish_what_is_short_and_hands_back_what_is_not(celery, client, notes) -> None:
    consumer = notes(drain_s=2)
    ask(celery, "sleep 1 short", "sleep 60 long", "sleep 60 waiting")
    wait_until(lambda: sorted(consumer.words) == ["+long", "+short"])
    began = time.monotonic()
    consumer.process.terminate()
    assert consumer.process.wait(20) == 3
    assert time.monotonic() - began < 10
    assert sorted(consumer.words) == ["+long", "+short", "short"]
    assert client.llen("notes") == 2  # at once, not after the visibility timeout
    assert client.hlen("notes.unacked") == 0


def test_what_a_consumer_hands_back_when_it_is_told_to_end_is_no_attempt(
    celery, client, letters, notes
) -> None:
    """As on spot nodes, which are taken away again and again."""
    ask(celery, "sleep 60 x", attempt=MOST_ATTEMPTS)
    for _ in range(2):
        consumer = notes(drain_s=0)
        wait_until(lambda consumer=consumer: consumer.words == ["+x"], timeout_s=60)
        consumer.process.terminate()
        assert consumer.process.wait(20) == 3
        assert (client.llen("notes"), client.hlen("notes.unacked")) == (1, 0)
        (left,) = client.lrange("notes", 0, -1)
        assert json.loads(left)["headers"][ATTEMPT_HEADER] == MOST_ATTEMPTS, consumer.log.read_text()
    assert letters.counts()["dead"] == 0


def test_what_nobody_can_process_at_the_moment_stays_in_the_queue(celery, client, letters, notes) -> None:
    consumer = notes()
    ask(celery, "not-now x", attempt=MOST_ATTEMPTS)
    wait_until(lambda: consumer.words == ["x"])
    time.sleep(2)  # taken, put back, and left alone
    assert (consumer.words, client.llen("notes"), letters.counts()["dead"]) == (["x"], 1, 0)
    wait_until(lambda: len(consumer.words) == 2)
    assert letters.counts()["dead"] == 0


def test_without_anything_to_do_sigterm_ends_at_once(celery, client, notes) -> None:
    consumer = notes(drain_s=30)
    ask(celery, "say a")
    wait_until(lambda: consumer.words == ["a"])
    consumer.process.terminate()
    assert consumer.process.wait(10) == 0


def test_letters_are_looked_at_sent_again_and_removed(celery, client, letters, notes) -> None:
    for number in range(3):
        letters.bury(f"say {number}", f"reason {number}", "note", 1)
    letters.bury("x" * (MOST_CHARACTERS + 1), "too long", "note", 1)
    letters.bury("?", "nobody's", None, 1)
    assert [letter.reason for letter in letters.read()] == [
        "reason 0", "reason 1", "reason 2", "too long", "nobody's"
    ]  # fmt: skip
    ids = [letter.id for letter in letters.read()]
    assert letters.purge([ids[1], "unknown"]) == [ids[1]]
    assert letters.requeue([ids[2]]) == [ids[2]]
    assert [letter.id for letter in letters.read()] == [ids[0], ids[3], ids[4]]
    assert letters.requeue() == [ids[0]]  # what was cut, or meant for no task, cannot be sent
    consumer = notes()
    wait_until(lambda: sorted(consumer.words) == ["0", "2"])
    assert letters.purge() == ids[3:]
    assert letters.counts()["dead"] == 0
    wait_until(lambda: client.hlen("notes.unacked") == 0)  # a message is let go after its word


def test_old_letters_make_room_for_new_ones(celery, letters, monkeypatch) -> None:
    monkeypatch.setattr("services.dead_letters.MOST_LETTERS", 3)
    for number in range(5):
        letters.bury(str(number), "x", "note", 1)
    assert [letter.message for letter in letters.read()] == ["2", "3", "4"]


def test_a_queue_that_nobody_reads_takes_no_more_than_it_may(celery, client) -> None:
    outbox, another = (Outbox(celery, "notes", "note", at_most=3) for _ in range(2))
    for _ in range(3):
        outbox.send("say a")
    for full in (outbox, another):
        with pytest.raises(QueueUnavailableError, match="3 messages are waiting in the queue notes"):
            full.send("say a")
    assert client.llen("notes") == 3
    assert b"say a" in client.lindex("notes", 0)  # as it is: base64 would make it a third larger
    client.ltrim("notes", 0, 1)
    outbox.send("say a")
    assert client.llen("notes") == 3


def test_a_message_that_a_full_broker_cannot_take_back_does_not_spin(monkeypatch) -> None:
    monkeypatch.setattr(consuming, "_PAUSE_S", 0.5)
    app = create_celery("test", "redis://127.0.0.1:1/0", consumes="notes")
    consuming.work_on(app, "notes", "note", lambda message: None)
    task = app.tasks["note"]
    task.push_request(delivery_info={"redelivered": True}, headers={})
    began = time.monotonic()
    with pytest.raises(Reject) as rejected:
        task.run("say a")
    assert rejected.value.requeue
    assert time.monotonic() - began >= 0.5
    app.close()


def ask_while_it_fills(celery, client) -> None:
    for attempt in range(50):  # buffers of connections that shrink may make room again
        for size in (100_000, 1000):
            with suppress(redis.ResponseError):  # until it is full
                for number in range(3000):
                    client.set(f"ballast-{attempt}-{size}-{number}", "x" * size)
        ask(celery, "say b")


def test_a_redis_that_is_full_refuses_in_our_words_and_goes_on_later(tmp_path) -> None:
    broker = Broker(None, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    consumer = Notes(broker.url, tmp_path / "notes")
    celery = create_celery("test", broker.url, consumes="notes")
    try:
        require_broker(celery, wait_s=5)
        ask(celery, "say a")
        wait_until(lambda: consumer.words == ["a"])
        with redis.Redis.from_url(broker.url) as client:
            with pytest.raises(QueueUnavailableError, match="maxmemory"):
                ask_while_it_fills(celery, client)
            client.delete(*client.keys("ballast-*"))
        ask(celery, "say c")
        wait_until(lambda: consumer.words[-1:] == ["c"], timeout_s=60)
    finally:
        celery.close()
        consumer.kill()
        broker.kill()


def test_messages_survive_the_death_of_a_redis_that_appends(tmp_path) -> None:
    broker = Broker(tmp_path)
    celery = create_celery("test", broker.url, consumes="notes")
    require_broker(celery, wait_s=5)
    ask(celery, *(f"say {number}" for number in range(20)))
    broker.kill()
    broker.start()
    require_broker(celery, wait_s=5)
    consumer = Notes(broker.url, tmp_path / "notes")
    wait_until(lambda: sorted(consumer.words, key=int) == [str(number) for number in range(20)])
    consumer.kill()
    celery.close()
    broker.kill()


def test_a_consumer_that_pauses_leaves_messages_to_others_and_comes_back(celery, client, notes) -> None:
    weary, fresh = notes(), notes()
    ask(celery, "pause 15")
    wait_until(lambda: client.llen("notes") + client.hlen("notes.unacked") == 0)
    one, other = weary, fresh
    began = time.monotonic()
    for number in range(20):
        ask(celery, f"sleep 0.02 {number}")
        time.sleep(0.05)
    wait_until(lambda: len(one.words) + len(other.words) == 40)
    assert time.monotonic() - began < 15  # else the pause was over, and this says nothing
    assert min(len(one.words), len(other.words)) <= 2  # one may have been on its way to it
    busy, resting = sorted((one, other), key=lambda consumer: -len(consumer.words))
    connections = len(client.client_list())
    busy.kill()
    wait_until(lambda: len(client.client_list()) < connections)  # else Redis may give the message to the dead
    ask(celery, "say back")
    wait_until(lambda: "back" in resting.words)


def test_installations_with_different_prefixes_share_a_redis(broker_url, client) -> None:
    apps = {
        prefix: create_celery("test", broker_url, prefix=prefix, consumes="notes") for prefix in ("a:", "b:")
    }
    send(apps["a:"], "notes", "note", "x")
    DeadLetters(apps["b:"], "notes").bury("y", "why", "note", 1)
    counts = {prefix: DeadLetters(app, "notes").counts() for prefix, app in apps.items()}
    assert counts == {
        "a:": {"waiting": 1, "taken": 0, "dead": 0},
        "b:": {"waiting": 0, "taken": 0, "dead": 1},
    }
    assert client.llen("a:notes") == 1
    (letter,) = DeadLetters(apps["b:"], "notes").read()
    assert DeadLetters(apps["b:"], "notes").requeue() == [letter.id]
    assert client.llen("b:notes") == 1
    for app in apps.values():
        app.close()
    client.delete("a:notes", "b:notes")


def test_a_prefix_needs_redis() -> None:
    with pytest.raises(ConfigurationError, match="virtual host in KBQA_BROKER_URL"):
        create_celery("test", "amqp://localhost", prefix="a:")


def test_letters_of_both_queues_leave_most_of_a_redis_of_256_mib_to_messages(client, letters) -> None:
    # A reply is as little compressible as this, because it is compressed already.
    reply = base64.b64encode(random.Random(1).randbytes(2 * MOST_CHARACTERS)).decode()
    letters.bury(reply, "no luck", "note", 1)
    largest = client.memory_usage("notes.dead", samples=0)
    assert largest > MOST_CHARACTERS / 2
    assert 2 * MOST_LETTERS * largest < 256 * 2**20 / 4

"""The queues of a Redis serve one home at a time; the trainer of another one stands by."""

from __future__ import annotations

import threading
import time

import pytest
import redis

from kbqa.errors import QueueUnavailableError, RunConflictError
from services.trainer.claim import QueueClaim
from tests.services.queues import Broker, answers, wait_until


def never(reason: str) -> None:
    raise AssertionError(reason)


@pytest.fixture
def client(broker_url):
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
        yield client


@pytest.fixture
def claim(broker_url, client):
    """`claim(prefix, lost=…)`: a claim that is released at the end."""
    made = []

    def make(prefix: str = "", lost=never) -> QueueClaim:
        made.append(QueueClaim(broker_url, prefix, lost, renewed_s=0.05))
        return made[-1]

    yield make
    for one in made:
        one.release()


def test_another_home_waits_until_the_queues_are_free(claim) -> None:
    mine, others = claim(), claim()
    mine.take("home-a", "trainer a-1")
    with pytest.raises(RunConflictError, match=r"trainer a-1 uses the queues .*KBQA_QUEUE_PREFIX"):
        others.take("home-b", "trainer b-2")
    mine.release()
    others.take("home-b", "trainer b-2")


def test_homes_with_different_prefixes_do_not_meet(claim) -> None:
    claim("a:").take("home-a", "trainer a-1")
    claim("b:").take("home-b", "trainer b-2")


def test_a_trainer_of_the_same_home_need_not_wait_for_one_that_was_killed(claim, client) -> None:
    claim().take("home-a", "trainer a-1")
    claim().take("home-a", "trainer a-2")
    assert client.get("kbqa.home") == b"home-a trainer a-2"


def test_a_claim_lives_as_long_as_it_is_renewed(claim, client) -> None:
    claim().take("home-a", "trainer a-1")
    client.pexpire("kbqa.home", 200)
    time.sleep(0.5)
    assert client.get("kbqa.home") == b"home-a trainer a-1"
    assert client.pttl("kbqa.home") > 1000


def test_who_lost_the_queues_meanwhile_is_told(claim, client) -> None:
    told, heard = [], threading.Event()

    def lost(reason: str) -> None:
        told.append(reason)
        heard.set()

    claim(lost=lost).take("home-a", "trainer a-1")
    client.set("kbqa.home", "home-b trainer b-2")  # as after a Redis that forgot everything
    assert heard.wait(10)
    assert "trainer b-2 uses the queues" in told[0]


def test_without_redis_nothing_is_claimed_and_other_brokers_need_no_claim() -> None:
    with pytest.raises(QueueUnavailableError, match="cannot be claimed"):
        QueueClaim("redis://127.0.0.1:1/0", "", never).take("home-a", "trainer a-1")
    other = QueueClaim("amqp://127.0.0.1:1", "", never)
    other.take("home-a", "trainer a-1")
    other.release()


def test_a_claim_outlives_a_redis_that_is_full() -> None:
    broker = Broker(None, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    try:
        with redis.Redis.from_url(broker.url) as client:
            wait_until(lambda: answers(client))
            mine = QueueClaim(broker.url, "", never, renewed_s=0.05)
            mine.take("home-a", "trainer a-1")
            with pytest.raises(redis.ResponseError, match="maxmemory"):
                fill(client)
            client.pexpire("kbqa.home", 300)
            time.sleep(0.6)
            assert client.pttl("kbqa.home") > 1000
            mine.release()
    finally:
        broker.kill()


def fill(client: redis.Redis) -> None:
    for number in range(10_000):
        client.set(f"ballast-{number}", "x" * 10_000)

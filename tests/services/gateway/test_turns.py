"""Gateways that share a Redis change one after another, and none waits for one that is dead."""

from __future__ import annotations

import threading
import time

import pytest
import redis

from kbqa.errors import ConfigurationError
from services.gateway.turns import Turns

GOING_ON = threading.Event()


@pytest.fixture
def url(broker_url):
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
    return broker_url


def turns(url, **options):
    return Turns(url, timeout_s=5.0, **options)


def in_turn(gateway, stopping, changed):
    """A gateway that waits for its turn and then changes, in a thread."""

    def change():
        with gateway.turn(stopping):
            changed.append(threading.current_thread().name)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    return thread


def test_a_gateway_changes_once_the_one_before_has_changed(url):
    """However long that takes: a turn does not expire while its gateway lives."""
    changed = []
    with turns(url, valid_s=0.3).turn(GOING_ON):
        second = in_turn(turns(url), GOING_ON, changed)
        second.join(1.0)
        assert changed == []
    second.join(60)
    assert len(changed) == 1


def test_the_turn_of_a_gateway_that_died_expires(url):
    with redis.Redis.from_url(url) as client:
        client.set("kbqa:gateway:turn", "of one that was killed", px=700)
    changed = []
    in_turn(turns(url), GOING_ON, changed).join(60)
    assert len(changed) == 1


def test_a_gateway_that_stops_waits_no_longer(url):
    stopping = threading.Event()
    with turns(url).turn(GOING_ON):
        waiting = in_turn(turns(url), stopping, [])
        stopping.set()
        waiting.join(60)
        assert not waiting.is_alive()


def test_a_turn_that_redis_has_forgotten_harms_nobody(url):
    with turns(url, valid_s=0.3).turn(GOING_ON), redis.Redis.from_url(url) as client:
        client.flushall()
        time.sleep(0.2)  # it is renewed meanwhile
        assert not client.exists("kbqa:gateway:turn")


def test_without_redis_nobody_waits(caplog):
    changed = []
    in_turn(turns("redis://127.0.0.1:1/0"), GOING_ON, changed).join(60)
    assert len(changed) == 1
    assert [record.reason for record in caplog.records] == ["ConnectionError"]


def test_what_is_no_url_of_redis_is_refused_at_the_start():
    with pytest.raises(ConfigurationError, match="KBQA_REDIS_URL"):
        turns("http://redis")

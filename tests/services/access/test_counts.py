"""Requests and questions, counted in a real Redis and without one."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
import redis
from prometheus_client import CollectorRegistry

from kbqa.errors import ConfigurationError
from kbqa.telemetry.metrics import Metrics
from services.access.counts import Counts
from services.access.errors import CountsUnavailableError


@pytest.fixture
def url(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    return redis_url


@pytest.fixture
def dead_url():
    """Where no Redis answers."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"redis://127.0.0.1:{probe.getsockname()[1]}/0"


def taken(*counts, limit="3/minute", times=5, callers=("a",), purpose="requests"):
    """How often each of several processes' counts let a caller in, in turn."""

    async def take():
        try:
            return [
                await one.take(limit, purpose, caller) is None
                for _ in range(times)
                for one in counts
                for caller in callers
            ]
        finally:
            for one in counts:
                await one.close()

    return asyncio.run(take())


def make(url, **options):
    failures = Metrics(CollectorRegistry()).counter("kbqa_gateway_redis_failures_total")
    return Counts(url, failures, **options)


@pytest.mark.parametrize("place", ["redis", "memory"])
def test_a_caller_gets_as_much_as_it_may_and_no_more(place, url):
    counts = make(url if place == "redis" else None)
    assert taken(counts) == [True] * 3 + [False] * 2


def test_gateways_count_together_in_redis(url):
    assert taken(make(url), make(url), times=3) == [True, True, True, False, False, False]


def test_callers_and_purposes_are_counted_apart(url):
    assert taken(make(url), limit="1/minute", times=2, callers=("a", "b")) == [True, True, False, False]
    assert taken(make(url), limit="1/minute", times=1, purpose="questions") == [True]


def test_what_one_limit_refuses_does_not_use_up_another(url):
    assert taken(make(url), limit="2/hour;3/day") == [True, True, False, False, False]
    assert taken(make(url), limit="3/day", times=2) == [True, False]


def test_it_is_said_when_to_come_back(url):
    async def wait():
        counts = make(url)
        await counts.take("1/minute", "requests", "a")
        wait_s = await counts.take("1/minute", "requests", "a")
        await counts.close()
        return wait_s

    assert 30 < asyncio.run(wait()) <= 61


@pytest.mark.parametrize("place", ["redis", "memory"])
def test_a_large_limit_holds_and_takes_no_more_memory_than_a_small_one(place, url):
    counts = make(url if place == "redis" else None)
    assert taken(counts, limit="1500/day", times=1510).count(True) == 1500
    if place == "redis":
        with redis.Redis.from_url(url) as client:
            assert sum(client.memory_usage(key) for key in client.keys("*")) < 1000


def test_one_limit_is_one_command(url):
    with redis.Redis.from_url(url) as client:
        taken(make(url), times=1)  # loads the script
        before = client.info("commandstats")
        taken(make(url), times=2)
        after = client.info("commandstats")
    scripts = ("cmdstat_evalsha", "cmdstat_eval")
    ran, earlier = (
        sum(stats.get(name, {"calls": 0})["calls"] for name in scripts) for stats in (after, before)
    )
    assert ran - earlier == 2


def test_no_limit_is_no_count(dead_url):
    assert taken(make(dead_url, without_redis="refuse"), limit=None) == [True] * 5


def test_without_redis_each_gateway_counts_by_itself_and_says_so(dead_url):
    registry = CollectorRegistry()
    counts = Counts(dead_url, Metrics(registry).counter("kbqa_gateway_redis_failures_total"))
    began = time.monotonic()
    assert taken(counts) == [True] * 3 + [False] * 2
    assert time.monotonic() - began < 20
    failures = registry.get_sample_value("kbqa_gateway_redis_failures_total", {"purpose": "counts"})
    assert failures == 1  # and then it is left alone for a while


def test_without_redis_requests_can_be_refused(dead_url):
    with pytest.raises(CountsUnavailableError, match="KBQA_GATEWAY_COUNTS_WITHOUT_REDIS=local"):
        taken(make(dead_url, without_redis="refuse"))


def test_a_redis_that_hangs_costs_its_time_limit_once():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        began = time.monotonic()
        assert taken(make(url, timeout_s=1.5)) == [True] * 3 + [False] * 2
        assert time.monotonic() - began < 5  # five times the limit would be 7.5 s


def test_what_is_no_url_of_redis_is_a_wrong_setting():
    with pytest.raises(ConfigurationError, match="KBQA_REDIS_URL"):
        make("http://127.0.0.1")

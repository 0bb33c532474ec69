"""A worker whose clock is off does not drop requests: it says so, and hands them back."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import ROLLOUTS, TRAJECTORIES, FailureReason, RolloutReply, decode, encode
from services.broker import clock_offset_s, create_celery
from services.rollout_worker.standing import Standing
from services.rollout_worker.worker import RequestHandler


@pytest.fixture
def celery(broker_url):
    app = create_celery("test", broker_url, consumes=ROLLOUTS)
    yield app
    app.close()


@pytest.fixture
def an_hour_ahead(monkeypatch) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)


def test_the_brokers_clock_is_the_measure(celery) -> None:
    assert abs(clock_offset_s(celery)) < 5


def test_a_request_that_only_seems_expired_is_handed_back(celery, make_request, request) -> None:
    message = encode(make_request("ahead", "t1"))
    request.getfixturevalue("an_hour_ahead")
    metrics, pauses = Metrics(CollectorRegistry()), []
    standing = Standing(metrics, pauses.append)
    executor = RolloutExecutor(SimpleNamespace(), SimpleNamespace(), Patience(1, 1, 1), "w")
    RequestHandler(executor, celery, metrics, standing, 1.0).take(message)

    with celery.connection_for_read() as connection:
        (text,), _, _ = json.loads(connection.default_channel.basic_get(TRAJECTORIES, no_ack=True).body)
    failure = decode(RolloutReply, text).failure
    assert failure.reason is FailureReason.CLOCK_OFF
    assert failure.detail == "the clock is +3600 s off the broker's: synchronise it (NTP)"
    assert pauses == [5.0]
    assert "synchronise it" in standing.unready()

"""A worker's engine: who waits while a version is fetched, and what a lost completion costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from kbqa.errors import NoPolicyError, PolicyUnavailableError
from kbqa.kg.client import HttpGraphTools
from kbqa.policies.base import Completion, FinishReason
from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.serving.engine import Engine
from kbqa.serving.hosting import InProcess
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import FailureReason, Purpose, RolloutReply, decode, encode
from tests.services.queues import wait_until

PATIENCE = Patience(policy_s=60, graph_s=1, rollout_s=60)
WAIT_S = 60.0


@pytest.fixture
def engine(store) -> Iterator[Engine]:
    engine = Engine(store, Metrics(CollectorRegistry()), InProcess(max_rows=16))
    yield engine
    engine.close()


@pytest.fixture
def executor(engine, graph_server) -> Iterator[RolloutExecutor]:
    with HttpGraphTools(graph_server.url) as tools:
        yield RolloutExecutor(engine, tools, PATIENCE, "w")


@pytest.fixture
def fetching(store, monkeypatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Set when a fetch has begun, and what every fetch waits for."""
    begun, go_on, verify = threading.Event(), threading.Event(), store.verify
    go_on.set()

    def slow(version, **options) -> None:
        begun.set()
        go_on.wait(WAIT_S)
        verify(version, **options)

    monkeypatch.setattr(store, "verify", slow)
    yield begun, go_on
    go_on.set()


def test_requests_go_on_with_the_held_version_while_the_next_is_fetched(engine, publish, fetching) -> None:
    begun, go_on = fetching
    first = publish("fetched", 1)
    with engine.lease("fetched", 1, WAIT_S):
        pass
    begun.clear()
    go_on.clear()
    second = publish("fetched", 2)
    began = time.monotonic()
    with engine.lease("fetched", 1, 0.1) as held:
        assert held.version.id == first.id
    assert begun.wait(WAIT_S)
    with engine.lease("fetched", 1, 0.1) as held:  # it can enter and leave during the fetch
        assert held.version.id == first.id
    with pytest.raises(NoPolicyError, match="still being loaded"), engine.lease("fetched", 2, 0.1):
        pass
    assert time.monotonic() - began < WAIT_S / 2
    go_on.set()
    with engine.lease("fetched", 2, WAIT_S) as held:
        assert held.version.id == second.id


def test_rollouts_begin_and_end_with_the_held_version_while_the_next_is_swapped_in(
    engine, publish, monkeypatch
) -> None:
    first = publish("swapped", 1)
    with engine.lease("swapped", 1, WAIT_S) as held:
        hosted = held.hosted
    begun, go_on, swapped, swap = threading.Event(), threading.Event(), list[str](), type(hosted).swap

    def slow(hosted, version) -> None:
        begun.set()
        go_on.wait(WAIT_S)
        swapped.append(version.id)
        swap(hosted, version)

    monkeypatch.setattr(type(hosted), "swap", slow)
    second = publish("swapped", 2)
    try:
        with engine.lease("swapped", 1, WAIT_S):
            assert begun.wait(WAIT_S)
            with engine.lease("swapped", 1, 0.1) as held:
                assert held.version.id == first.id
        assert swapped == []  # nobody has waited for it
    finally:
        go_on.set()
    with engine.lease("swapped", 2, WAIT_S) as held:
        assert (held.version.id, held.hosted) == (second.id, hosted)


def test_requests_that_wait_look_into_the_store_together(engine, publish, store, monkeypatch) -> None:
    publish("waited", 1)
    looks, newest = list[str](), store.newest

    def counted(run, *arguments):
        looks.append(run)
        return newest(run, *arguments)

    monkeypatch.setattr(store, "newest", counted)
    leased = list[int]()

    def lease() -> None:
        with engine.lease("waited", 2, WAIT_S) as held:
            leased.append(held.version.number)

    requests = [threading.Thread(target=lease) for _ in range(16)]
    for request in requests:
        request.start()
    time.sleep(2)
    assert len(looks) <= 16 + 2 / 0.2 + 1  # one each at first, then one together
    publish("waited", 2)
    for request in requests:
        request.join(WAIT_S)
    assert leased == [2] * 16


def test_a_version_that_cannot_be_loaded_leaves_the_held_one_to_those_whom_it_serves(
    engine, publish, store
) -> None:
    first = publish("damaged", 1)
    with engine.lease("damaged", 1, WAIT_S):
        pass
    bad = publish("damaged", 2)
    (bad.path / "model.safetensors").write_bytes(b"x")
    with engine.lease("damaged", 1, WAIT_S) as held:
        assert held.version.id == first.id
    wait_until(lambda: "checksum" in (engine.unready() or ""), WAIT_S)
    with engine.lease("damaged", 1, WAIT_S) as held:
        assert held.version.id == first.id


def test_a_version_that_a_restore_has_undone_serves_nobody(engine, publish, store, fetching) -> None:
    undone = publish("undone", 2)
    with engine.lease("undone", 1, WAIT_S):
        pass
    fetching[1].clear()
    publish("undone", 2, vocabulary=420)
    newest = store.newest("undone")
    assert newest.id != undone.id
    with pytest.raises(NoPolicyError), engine.lease("undone", 1, 0.1):
        pass
    fetching[1].set()
    with engine.lease("undone", 1, WAIT_S) as held:
        assert held.version.id == newest.id


class Losing:
    """A policy that loses the completions at some places of its calls."""

    def __init__(self, policy, places) -> None:
        self._policy, self._places = policy, places
        self.max_length = policy.max_length

    def generate(self, prompts, params, **stopping):
        written = self._policy.generate(prompts, params, **stopping)
        lost = Completion((), (), FinishReason.LOST, "", "no answer within 1 s")
        return [lost if n in self._places else c for n, c in enumerate(written)]


@pytest.fixture
def lose(monkeypatch):
    def lose(*places: int) -> None:
        monkeypatch.setattr(
            "kbqa.runs.stopwatch.Stopwatch.policy", lambda stopwatch, policy: Losing(policy, places)
        )

    return lose


def test_a_lost_completion_costs_its_episode_and_nothing_else(
    executor, engine, publish, make_request, lose
) -> None:
    publish("one-lost", 1)
    with engine.lease("one-lost", 1, WAIT_S) as held:
        hosted = held.hosted
    lose(1)
    reply = executor.execute(make_request("one-lost", "t1"))
    assert reply.failure is None, reply.failure
    assert reply.lost >= 1
    assert len(reply.group.members) == 3 - reply.lost
    assert "lost" not in {member.trajectory.status for member in reply.group.members}
    assert decode(RolloutReply, encode(reply)) == reply
    with engine.lease("one-lost", 1, WAIT_S) as held:
        assert held.hosted is hosted


def test_a_group_of_which_all_is_lost_fails_and_leaves_the_engine_alone(
    executor, engine, publish, make_request, lose
) -> None:
    publish("all-lost", 1)
    with engine.lease("all-lost", 1, WAIT_S) as held:
        hosted = held.hosted
    lose(0, 1, 2)
    reply = executor.execute(make_request("all-lost", "t1"))
    assert (reply.failure.reason, reply.failure.detail) == (
        FailureReason.POLICY_UNAVAILABLE,
        "no answer within 1 s",
    )
    with engine.lease("all-lost", 1, WAIT_S) as held:
        assert held.hosted is hosted


def test_an_episode_is_no_longer_than_the_engine_takes(executor, engine, publish, make_request) -> None:
    publish("short", 1)
    with engine.lease("short", 1, WAIT_S) as held:
        held.policy._max_length = 40
        assert held.policy.max_length == 40
    reply = executor.execute(make_request("short", "t1", purpose=Purpose.EVALUATE, n=1))
    assert reply.failure is None, reply.failure
    assert reply.group.members[0].trajectory.status == "out_of_tokens"


def test_a_recipe_may_take_longer_than_the_workers_timeout_but_not_longer_than_its_bound(recipe) -> None:
    def with_deadline(seconds: float):
        return recipe.model_copy(
            update={"schedule": recipe.schedule.model_copy(update={"request_deadline_s": seconds})}
        )

    patience = Patience(30, 30, 300, longest_s=7000)
    assert patience.rollout_of(with_deadline(20)) == 300
    assert patience.rollout_of(with_deadline(3600)) == 3600
    assert patience.rollout_of(with_deadline(9000)) == 7000
    assert replace(patience, longest_s=100).rollout_of(with_deadline(20)) == 100


def test_an_engine_that_does_not_answer_is_waited_for(engine, publish, monkeypatch) -> None:
    publish("away", 1)
    with engine.lease("away", 1, WAIT_S) as held:
        hosted = type(held.hosted)
    monkeypatch.setattr(hosted, "available", property(lambda self: False))
    with pytest.raises(PolicyUnavailableError, match="tried again"), engine.lease("away", 1, 0.1):
        pass
    threading.Timer(
        0.3, lambda: monkeypatch.setattr(hosted, "available", property(lambda self: True))
    ).start()
    with engine.lease("away", 1, WAIT_S):
        pass

"""From a request to its reply, within this process, over a real engine and a real graph."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from kbqa.errors import JudgeUnavailableError, NoPolicyError
from kbqa.kg.client import HttpGraphTools
from kbqa.rewards.kg_r1 import KgR1Reward
from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.serving.engine import Engine
from kbqa.serving.hosting import InProcess
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import FailureReason

PATIENCE = Patience(policy_s=30, graph_s=0.5, rollout_s=60)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest.fixture
def engine(store, metrics) -> Iterator[Engine]:
    engine = Engine(store, metrics, InProcess(max_rows=16))
    yield engine
    engine.close()


@pytest.fixture
def make_rollouts(engine, graph_server):
    opened = []

    def make(url: str = graph_server.url, patience: Patience = PATIENCE) -> RolloutExecutor:
        opened.append(HttpGraphTools(url))
        return RolloutExecutor(engine, opened[-1], patience, "w")

    yield make
    for tools in opened:
        tools.close()


def loads(metrics: Metrics, kind: str) -> float:
    return metrics.registry.get_sample_value("kbqa_rollout_policy_loads_total", {"kind": kind}) or 0.0


def versions_of(reply) -> set[str]:
    assert reply.group is not None, reply.failure
    return {v for member in reply.group.members for v in member.trajectory.policy_versions}


def test_a_group_is_whole_scored_and_repeatable(make_rollouts, publish, make_request) -> None:
    version = publish("whole", 1)
    rollouts = make_rollouts()
    reply = rollouts.execute(make_request("whole", "t1"))
    assert (reply.run, reply.request_id, reply.worker) == ("whole", "t1", "w")
    assert versions_of(reply) == {version.id}
    assert reply.group is not None
    assert len(reply.group.members) == 3
    assert all("f1" in member.components for member in reply.group.members)
    timings = reply.timings
    assert timings.engine_s > 0
    assert timings.engine_s + timings.graph_s <= timings.rollout_s
    again = rollouts.execute(make_request("whole", "t1"))
    assert [m.trajectory.token_ids for m in again.group.members] == [
        m.trajectory.token_ids for m in reply.group.members
    ]


def test_a_request_is_rewarded_by_its_stage_of_the_curriculum(request, tiny_recipe, make_rollouts) -> None:
    tiny_recipe["reward"] = {"name": "learning_to_refine", "invalid": -1.0}
    strict = {"name": "strict", "reward": {"invalid": -5.0}}
    tiny_recipe["curriculum"] = {"stages": [{"name": "mild", "until": {"steps": 1}}, strict]}
    publish, make_request = (request.getfixturevalue(name) for name in ("publish", "make_request"))
    publish("staged", 1)
    rollouts = make_rollouts()
    earned = {}
    for stage in (None, 0, 1):
        reply = rollouts.execute(make_request("staged", "t1", stage=stage))
        assert reply.group is not None, reply.failure
        earned[stage] = {member.outcome for member in reply.group.members}
    assert earned == {None: {-1.0}, 0: {-1.0}, 1: {-5.0}}  # random weights answer nothing
    beyond = rollouts.execute(make_request("staged", "t2", stage=2))
    assert "has 2 stages" in beyond.failure.detail


def test_a_question_that_is_screened_is_asked_n_times_only_if_one_episode_does_not_answer_it(
    request, tiny_recipe, make_rollouts, monkeypatch
) -> None:
    tiny_recipe["rollout"]["screened"] = True
    publish, make_request = (request.getfixturevalue(name) for name in ("publish", "make_request"))
    publish("screened", 1)
    rollouts, score, seen, measured = make_rollouts(), KgR1Reward.score, [], {}

    def scored(reward, question, trajectory, instruments):
        seen.append(trajectory.token_ids)
        found = score(reward, question, trajectory, instruments)
        return replace(found, components=found.components | measured)

    monkeypatch.setattr(KgR1Reward, "score", scored)
    for f1, members in ((1.0, 1), (0.5, 3)):
        seen.clear()
        measured["f1"] = f1
        reply = rollouts.execute(make_request("screened", "t1"))
        assert reply.group is not None, reply.failure
        assert len(reply.group.members) == members
    assert len(seen) == 4
    assert seen[0] not in seen[1:], "the group is sampled anew"


def test_a_newer_version_is_swapped_in_and_another_architecture_built(
    make_rollouts, publish, make_request, metrics
) -> None:
    rollouts = make_rollouts()
    first = publish("swap", 1)
    assert versions_of(rollouts.execute(make_request("swap", "t1"))) == {first.id}
    second = publish("swap", 2)
    assert versions_of(rollouts.execute(make_request("swap", "t2", min_policy_version=2))) == {second.id}
    assert (loads(metrics, "build"), loads(metrics, "swap")) == (1, 1)
    third = publish("swap", 3, vocabulary=420)
    assert versions_of(rollouts.execute(make_request("swap", "t3", min_policy_version=3))) == {third.id}
    assert (loads(metrics, "build"), loads(metrics, "swap")) == (2, 1)


def test_swapped_weights_are_those_of_the_version(make_rollouts, publish, make_request, store, graph_server):
    rollouts = make_rollouts()
    publish("exact", 1)
    rollouts.execute(make_request("exact", "t1"))
    publish("exact", 2)
    swapped = rollouts.execute(make_request("exact", "t2", min_policy_version=2))
    engine = Engine(store, Metrics(CollectorRegistry()), InProcess(max_rows=16))
    with HttpGraphTools(graph_server.url) as tools:
        built = RolloutExecutor(engine, tools, PATIENCE, "w").execute(make_request("exact", "t2"))
    engine.close()
    for left, right in zip(swapped.group.members, built.group.members, strict=True):
        assert left.trajectory.token_ids == right.trajectory.token_ids


def test_a_version_that_is_yet_to_come_is_waited_for(make_rollouts, publish, make_request) -> None:
    publish("wait", 1)
    rollouts = make_rollouts(patience=Patience(policy_s=10, graph_s=1, rollout_s=60))
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(rollouts.execute, make_request("wait", "t1", min_policy_version=2))
        time.sleep(0.3)
        assert not reply.done()
        second = publish("wait", 2)
        assert versions_of(reply.result(timeout=10)) == {second.id}


@pytest.mark.parametrize(
    ("changes", "reason", "word"),
    [
        ({"min_policy_version": 9}, FailureReason.NO_POLICY, "no version 9 or newer"),
        ({"recipe_digest": "0" * 64}, FailureReason.RECIPE_MISMATCH, "another recipe"),
        ({"kg_version": "0123456789ab"}, FailureReason.GRAPH_CHANGED, "0123456789ab"),
        ({"kg": "mars", "kg_version": "x"}, FailureReason.GRAPH_NOT_FOUND, "mars"),
    ],
)
def test_what_cannot_be_done_is_answered_with_the_reason(
    make_rollouts, publish, make_request, questions, changes, reason, word
) -> None:
    publish("reason", 1)
    changes = dict(changes)
    if kg := changes.pop("kg", None):
        changes["question"] = replace(questions[0], kg=kg)
    patience = replace(PATIENCE, policy_s=0.5) if reason is FailureReason.NO_POLICY else PATIENCE
    reply = make_rollouts(patience=patience).execute(make_request("reason", "t1", **changes))
    assert reply.group is None
    assert reply.failure.reason is reason
    assert word in reply.failure.detail


def test_kg_server_is_waited_for_but_not_for_ever(make_rollouts, publish, make_request) -> None:
    publish("down", 1)
    began = time.monotonic()
    reply = make_rollouts("http://127.0.0.1:1").execute(make_request("down", "t1", kg_version="x"))
    assert reply.failure.reason is FailureReason.GRAPH_UNAVAILABLE
    assert "KBQA_KG_SERVER_URL" in reply.failure.detail
    assert time.monotonic() - began < 30


def test_a_damaged_version_is_refused_until_a_good_one_comes(make_rollouts, publish, make_request) -> None:
    rollouts = make_rollouts()
    publish("damaged", 1)
    rollouts.execute(make_request("damaged", "t1"))
    bad = publish("damaged", 2)
    (bad.path / "model.safetensors").write_bytes(b"x")
    reply = rollouts.execute(make_request("damaged", "t2", min_policy_version=2))
    assert reply.failure.reason is FailureReason.VERSION_REFUSED
    assert "checksum" in reply.failure.detail
    good = publish("damaged", 3)
    assert versions_of(rollouts.execute(make_request("damaged", "t3", min_policy_version=3))) == {good.id}


def test_an_engine_that_failed_is_built_anew(make_rollouts, publish, make_request, engine, metrics) -> None:
    publish("failed", 1)
    rollouts = make_rollouts()
    rollouts.execute(make_request("failed", "t1"))
    with engine.lease("failed", 1, wait_s=60) as held:
        held.hosted.close()
    assert rollouts.execute(make_request("failed", "t2")).group is not None
    assert loads(metrics, "build") == 2


def test_two_runs_never_share_the_engine(engine, publish) -> None:
    publish("one", 1)
    publish("two", 1)
    entered, leave = threading.Event(), threading.Event()

    def use_one() -> None:
        with engine.lease("one", 1, wait_s=60):
            entered.set()
            assert leave.wait(60)

    user = threading.Thread(target=use_one)
    user.start()
    assert entered.wait(60)
    with pytest.raises(NoPolicyError, match="busy with another run"), engine.lease("two", 1, wait_s=0.2):
        pass
    with engine.lease("one", 1, wait_s=60) as held:  # its own run may
        assert held.version.run == "one"
    leave.set()
    user.join()
    with engine.lease("two", 1, wait_s=60) as held:
        assert held.version.run == "two"


def test_an_episode_that_no_judge_judged_is_left_out_and_a_group_without_any_fails(
    make_rollouts, publish, make_request, monkeypatch, caplog
) -> None:
    publish("judged", 1)
    rollouts = make_rollouts()
    judges, score = iter([False, True, True, False, False, False]), KgR1Reward.score

    def scored(reward, question, trajectory, instruments):
        if next(judges):
            return score(reward, question, trajectory, instruments)
        raise JudgeUnavailableError("the judge is away")

    monkeypatch.setattr(KgR1Reward, "score", scored)
    some, none = (rollouts.execute(make_request("judged", name)) for name in ("t1", "t2"))
    assert some.group is not None
    assert len(some.group.members) == 2
    assert "episodes without a verdict are left out" in caplog.messages
    assert none.group is None
    assert (none.failure.reason, none.failure.detail) == (
        FailureReason.JUDGE_UNAVAILABLE,
        "the judge is away",
    )

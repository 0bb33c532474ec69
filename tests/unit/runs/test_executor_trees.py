"""A recipe whose rollouts are trees, from its request to training samples, over a real engine and graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from kbqa.kg.client import HttpGraphTools
from kbqa.recipes import Recipe, recipe_from
from kbqa.runs.executor import Patience, RolloutExecutor
from kbqa.serving.engine import Engine
from kbqa.serving.hosting import InProcess
from kbqa.telemetry.metrics import Metrics
from kbqa.wire import Purpose, RolloutReply, decode, encode


@pytest.fixture
def recipe(tiny_recipe) -> Recipe:
    values = copy.deepcopy(tiny_recipe)
    values["protocol"] = {"name": "interactive_parsing", "prompt": "brief"}
    del values["rollout"]["n"]
    values["rollout"] |= {"kind": "tree", "k": 3, "max_active": 4, "max_nodes": 40}
    values["reward"] = {"name": "isp_kgr"}
    values["advantage"] = {"kind": "state"}
    return recipe_from(values)


@pytest.fixture
def rollouts(store, graph_server) -> Iterator[RolloutExecutor]:
    engine = Engine(store, Metrics(CollectorRegistry()), InProcess(max_rows=16))
    with HttpGraphTools(graph_server.url) as tools:
        yield RolloutExecutor(engine, tools, Patience(policy_s=0.3, graph_s=0.5, rollout_s=60), "w")
    engine.close()


def test_a_training_request_comes_back_as_one_tree(rollouts, publish, make_request, recipe) -> None:
    version = publish("tree", 1)
    reply = rollouts.execute(make_request("tree", "t1"))
    assert reply.failure is None, reply.failure
    assert reply.tree is not None
    assert decode(RolloutReply, encode(reply)) == reply
    assert reply.tree.policy_versions == {version.id}
    assert reply.tree.tree.sampled >= 3
    assert len(reply.tree.rewards) == len(reply.tree.tree.steps)
    # A policy that knows nothing fails alike at every branch; another reward for one teaches.
    rewards = (1.0, *reply.tree.rewards[1:])
    samples = recipe.advantage.build().samples(replace(reply.tree, rewards=rewards))
    assert {sum(sample.mask) for sample in samples} == {
        len(reply.tree.tree.steps[index].turn.logprobs) for index in reply.tree.groups[0].steps
    }


def test_an_evaluation_is_linear(rollouts, publish, make_request) -> None:
    publish("linear", 1)
    reply = rollouts.execute(make_request("linear", "e1", purpose=Purpose.EVALUATE, n=1, temperature=0.0))
    assert reply.failure is None, reply.failure
    assert reply.group is not None
    assert len(reply.group.members) == 1

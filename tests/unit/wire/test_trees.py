"""A tree travels whole, what its branches share once, and only if it is consistent."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import MessageError
from kbqa.trajectory import Question, Status, Turn
from kbqa.tree import RewardedTree, Step, Tree
from kbqa.wire import Purpose, RolloutReply, decode, encode

QUESTION = Question("q1", "Who?", ("Ann",), ("Bob",), "world")


def step(parent, start, length, status=None):
    turn = Turn(start, start + 2, (-0.5, -0.25), "x", Status.OK, policy_version="v000001-00000000")
    return Step(parent, tuple(range(length)), turn, status)


def reply(tree_id="t1"):
    steps = (step(None, 3, 5), step(None, 3, 2, Status.UNPARSABLE), step(0, 8, 2, Status.ANSWERED))
    components = ({}, {"f1": 0.0}, {"f1": 1.0})
    rewarded = RewardedTree(tree_id, QUESTION, Tree((7, 8, 9), steps, 6), (1.0, -0.7, 0.4), components)
    return RolloutReply(run="r", request_id="t1", purpose=Purpose.TRAIN, worker="w", tree=rewarded)


def test_a_tree_round_trips():
    message = decode(RolloutReply, encode(reply()))
    assert message == reply()
    assert message.rollout.policy_versions == {"v000001-00000000"}
    assert message.rollout.members[1].trajectory.token_ids == (7, 8, 9, 0, 1, 2, 3, 4, 0, 1)


def test_a_tree_answers_the_request_that_it_names():
    with pytest.raises(ValueError, match=r"tree\.id is 't2', request_id is 't1'"):
        reply("t2")


def test_a_reply_is_no_tree_and_a_group_at_once():
    values = json.loads(encode(reply()))
    values["group"] = {"id": "t1", "question": values["tree"]["question"], "members": []}
    with pytest.raises(MessageError, match="exactly one of group, tree and failure"):
        decode(RolloutReply, json.dumps(values))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda t: t["rewards"].pop(), "2 rewards and 3 components for 3 steps"),
        (lambda t: t["tree"]["steps"][2].update(parent=2), r"steps\.2\.parent: 2 is no earlier step"),
        (lambda t: t["tree"]["steps"][2].update(parent=-1), r"steps\.2\.parent: -1"),
        (lambda t: t["tree"]["steps"][2].update(parent=1), r"begins at 8, its state ends at 5"),
        (lambda t: t["tree"]["steps"][2]["turn"].update(end=11), "tokens 8 to 11 of 10"),
        (lambda t: t["tree"]["steps"][2]["turn"].update(logprobs=[0]), "logprobs: 1 for 2 tokens"),
        (lambda t: t["tree"].update(prompt_ids=[7, 8]), "begins at 3, its state ends at 2"),
    ],
)
def test_a_tree_that_contradicts_itself_is_refused(damage, complaint):
    values = json.loads(encode(reply()))
    damage(values["tree"])
    with pytest.raises(MessageError, match=complaint):
        decode(RolloutReply, json.dumps(values))


def test_a_tree_that_cannot_be_learned_from_becomes_a_failure():
    refused = decode(RolloutReply, encode(reply().refused("why")))
    assert (refused.rollout, refused.request_id, refused.worker) == (None, "t1", "w")
    assert refused.failure.detail == "why: check that worker w has the trainer's policy store and release"

"""Which fields a step's record has: those that its rollouts have something to say of."""

from __future__ import annotations

import pytest

from kbqa.runs.statistics import Curves, advantage_spread, distributions
from kbqa.trajectory import (
    ExecutedAction,
    GatedRelation,
    Group,
    Hop,
    Question,
    RewardedTrajectory,
    Status,
    TrainingSample,
    Trajectory,
)
from tests.unit.episodes import turn

ASKED = Question("q1", "who directed Heat ?", ("Mann",), ("Heat",), "films", path=(Hop("directed_by"),))
PATHLESS = Question("q2", "who directed Heat ?", ("Mann",), ("Heat",), "films")


class Letters:
    """Relations are alike that begin alike."""

    def encode(self, texts):
        import numpy as np

        return np.array([[1.0, 0.0] if text.startswith("d") else [0.0, 1.0] for text in texts])


def group(question: Question, *relations: str) -> Group:
    """One episode for each relation, which is looked up."""
    members = []
    for relation in relations:
        gated = (GatedRelation(relation, 0.9, "high"),)
        action = ExecutedAction("find_relation", {"relation": relation}, None, ("m",), ("Mann",), gated)
        trajectory = Trajectory((0, 1), (turn(1, 2, actions=(action,)),), Status.ANSWERED)
        members.append(RewardedTrajectory(trajectory, (0.0,), 1.0, {"f1": 1.0}))
    return Group(question.id, question, tuple(members))


def test_relations_are_compared_with_those_of_the_gold_path():
    curves = Curves([ASKED, PATHLESS], Letters())
    values = curves.of(
        [group(ASKED, "directed_by", "distributed_by", "starring"), group(PATHLESS, "starring")]
    )
    assert values["relation_similarity"] == pytest.approx(2 / 3)  # 1, 1 and 0
    assert sum(values["relation_similarity_bins"]) == 3
    assert values["error_reward"] == [(0.0, 1.0), (0.0, 1.0)]


def test_without_gold_paths_or_episodes_nothing_is_said_of_them():
    curves = Curves([PATHLESS], Letters())
    assert "relation_similarity" not in curves.of([group(PATHLESS, "starring")])
    assert "error_reward" not in curves.of([group(PATHLESS)])


def test_the_spread_of_a_step_is_told_by_reward_turn_length_and_action():
    def episode(rewards, outcome, end, name, code=None, status=Status.ANSWERED):
        actions = (ExecutedAction(name, {}, code, () if code else ("m",)),)
        trajectory = Trajectory(tuple(range(end)), (turn(1, end, actions=actions),), status)
        return RewardedTrajectory(trajectory, rewards, outcome, {"f1": outcome})

    known = "get_tail_entities"
    found = distributions(
        [
            episode((0.5,), 1.0, 3, known),
            episode((0.5, 0.25), 0.0, 7, known, code="no_results"),
            episode((0.0,), 0.0, 5, "made_up", code="invalid", status=Status.OUT_OF_TOKENS),
        ]
    )
    assert found["reward_spread"]["min"] == 0.0
    assert found["reward_spread"]["max"] == 1.5
    assert found["reward_spread"]["std"] == pytest.approx(0.6124, abs=1e-4)
    assert found["reward_components"] == {"f1": pytest.approx(1 / 3)}
    assert found["turn_rewards"] == {"1": pytest.approx(1 / 3), "2": 0.25}
    assert found["episode_tokens"] == {"p95": 6, "max": 6}
    assert found["truncated"] == pytest.approx(1 / 3)
    # Names that a policy makes up must not become time series.
    assert found["action_success"] == {known: 0.5, "other": 0.0}
    assert distributions([]) == {}


def test_the_spread_of_advantages_is_that_of_samples_and_unknown_without_tokens():
    def sample(advantage, tokens=2):
        mask = (False, *(tokens * [True]))
        return TrainingSample((0,) * len(mask), mask, (0.0,) * len(mask), (0.0, *(tokens * [advantage])))

    assert advantage_spread([[sample(1.0), sample(-1.0, 8)], []]) == 1.0
    assert advantage_spread([[sample(0.0)]]) == 0.0
    assert advantage_spread([[], [TrainingSample((0,), (False,), (0.0,), (0.0,))]]) is None

"""Which fields a step's record has: those that its rollouts have something to say of."""

from __future__ import annotations

import pytest

from kbqa.runs.statistics import Curves
from kbqa.trajectory import (
    ExecutedAction,
    GatedRelation,
    Group,
    Hop,
    Question,
    RewardedTrajectory,
    Status,
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

"""KBQA-R1's curves of relations: what the gate said, and how near the reference actions are."""

from __future__ import annotations

import pytest

from kbqa.curves import gate_means, histogram, relation_similarities
from kbqa.environment import Budget, Episode
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.base import Completion, FinishReason
from kbqa.protocols import KbqaR1
from kbqa.trajectory import (
    ExecutedAction,
    GatedRelation,
    Group,
    RewardedTrajectory,
    Segment,
    Status,
    Trajectory,
)
from kbqa.tree import RewardedTree, Step, Tree
from tests.unit.episodes import query, question, turn
from tests.unit.policies_fixtures import make_codec

FILMS = OxigraphStore.from_triples(
    [
        ("Al P", "film.actor.film", "Heat"),
        ("Heat", "film.film.directed_by", "Michael M"),
        ("Heat", "film.film.runtime", "170"),
    ]
)


def gated(relation, score, tier, **more):
    return ExecutedAction(
        "find_relation", {"relation": "words"}, gated=(GatedRelation(relation, score, tier),), **more
    )


def group(*actions):
    played = Trajectory((0, 1), (turn(1, 2, actions=actions),), Status.ANSWERED)
    return Group("g", question(), (RewardedTrajectory(played, (0.0,), 0.0, {"f1": 0.0}),))


def test_what_the_gate_said():
    rollout = group(
        gated("film.actor.film", 1.0, "high"),
        gated("film.film.runtime", 0.5, "medium"),
        gated("film.film.directed_by", 0.25, "low"),
        gated("film.actor.film", 0.25, "low"),
    )
    assert gate_means([rollout]) == {
        "rrcg_top1": 0.5,
        "rrcg_high": 0.25,
        "rrcg_medium": 0.25,
        "rrcg_low": 0.5,
    }
    assert gate_means([group(query())]) == {}


def test_a_relation_is_compared_with_the_nearest_of_the_reference():
    encoder, reference = NgramEncoder(), ("film.actor.film", "film.film.directed_by")
    rollout = group(
        gated("film.film.directed_by", 0.4, "medium"),  # the same: 1, whatever was written
        query("film.film.directed"),  # as it was written
        gated("people.person.parents", 0.1, "low"),  # rejected: nothing was selected
    )
    same, near = relation_similarities([rollout], {"q1": reference}, encoder)
    written, *known = encoder.encode(["film.film.directed", *reference])
    assert same == 1.0
    assert near == pytest.approx(max(float(vector @ written) for vector in known))
    assert 0.5 < near < 1
    assert relation_similarities([rollout], {"another": reference}, encoder) == []


def test_the_actions_of_a_tree_count_once():
    steps = (
        Step(None, (1,), turn(1, 2, actions=[gated("a", 1.0, "high")])),
        Step(0, (1,), turn(2, 3, actions=[gated("b", 0.0, "low")]), Status.ACTION_ERROR),
        Step(0, (1,), turn(2, 3), Status.ANSWERED),
    )
    tree = RewardedTree("t", question(), Tree((0,), steps, 3), (0.0,) * 3, ({"f1": 0.0},) * 3)
    assert gate_means([tree])["rrcg_top1"] == 0.5


def test_a_histogram_holds_both_ends():
    counts = histogram([0.0, 0.04, 0.05, 0.999, 1.0])
    assert (counts[0], counts[1], counts[19], sum(counts), len(counts)) == (2, 1, 2, 5, 20)


def test_an_episode_keeps_what_the_gate_said():
    """From the graph's own verdicts: one that is meant exactly, one that is similar, one that is not."""
    tools, codec = LocalGraphTools(FixedGraphs({"films": FILMS})), make_codec()
    played = Episode(question(topic="Al P"), KbqaR1("brief"), codec, Budget(3, 9999, 999, 999))
    lines = "\n".join(
        f"Find_relation [ {entity} | {relation} ]"
        for entity, relation in (
            ("Al P", "film.actor.film"),
            ("Heat", "directed by"),
            ("Heat", "xyzzy"),
        )
    )
    ids = tuple(codec.encode([Segment(f"<think>t</think><action>{lines}</action>")]))
    played.act(Completion(ids, (0.0,) * len(ids), FinishReason.STOP, "v"))
    while played.actions:
        played.observe(tools.execute("films", played.actions))
    verdicts = [verdict for action in played.turns[0].actions for verdict in action.gated]
    assert [verdict.tier for verdict in verdicts] == ["high", "medium", "low"]
    assert [verdict.relation for verdict in verdicts[:2]] == ["film.actor.film", "film.film.directed_by"]
    assert verdicts[0].score == pytest.approx(1.0)
    assert 0.3 <= verdicts[1].score < 0.95
    assert verdicts[2].score < 0.3

"""RRCG's tiers at their bounds, and directions, with similarities that are set."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kbqa.kg.actions import ErrorCode, Item, ScoredItem
from kbqa.kg.ranking.encoders import Thresholds
from kbqa.kg.ranking.gating import IN, OUT, Neighbours, RelationGate, Tier, read_relation
from kbqa.kg.ranking.ranker import Ranker

PAPER = Thresholds(high=0.95, low=0.3)


class SetEncoder:
    """Every text has the similarity with the query that it is given, in the plane."""

    name = "set"
    thresholds = PAPER

    def __init__(self, similarities):
        self._similarities = similarities

    def encode(self, texts):
        cosines = [self._similarities[text] for text in texts]
        return np.array([[c, math.sqrt(1 - c * c)] for c in cosines], np.float32)

    def encode_query(self, text, instruction=""):
        return np.array([1, 0], np.float32)


@pytest.fixture
def judge():
    def judge(out=None, into=None, text="query", top_k=5, **options):
        """The verdict where relations have these similarities."""
        out, into = out or {}, into or {}
        gate = RelationGate(Ranker(SetEncoder({**out, **into}), list), PAPER, top_k)
        neighbours = Neighbours(tuple(Item(r, r) for r in out), tuple(Item(r, r) for r in into))
        return gate.judge(text, neighbours, **options)

    return judge


@pytest.mark.parametrize(
    ("score", "tier"),
    [
        (1.0, Tier.HIGH),
        (0.95, Tier.HIGH),
        (0.9499, Tier.MEDIUM),
        (0.3, Tier.MEDIUM),
        (0.2999, Tier.LOW),
        (0.0, Tier.LOW),
        (-0.5, Tier.LOW),
    ],
)
def test_the_bounds_belong_to_the_tier_above(judge, score, tier):
    """tau_high <= s is high, tau_low <= s < tau_high medium, s < tau_low low (section IV-A3)."""
    verdict = judge({"r": score, "worse": -0.9})
    assert (verdict.tier, verdict.relation) == (tier, ScoredItem("r", "r", score, OUT))


def test_the_high_tier_tells_the_relation_alone(judge):
    assert judge({"a": 0.97, "b": 0.96}).details(5) == {
        "tier": "high",
        "relation": {"id": "a", "label": "a", "score": 0.97, "direction": "out"},
    }


def test_the_medium_tier_tells_the_top_k_with_scores(judge):
    told = judge({"a": 0.5, "b": 0.4, "c": 0.1}, {"d": 0.45}).details(3)
    assert told["tier"] == "medium"
    assert [(c["id"], c["score"], c["direction"]) for c in told["candidates"]] == [
        ("a", 0.5, "out"),
        ("d", 0.45, "in"),
        ("b", 0.4, "out"),
    ]


def test_the_low_tier_tells_all_neighbours_with_scores(judge):
    out = {f"r{n}": n / 100 for n in range(20)}
    failure = judge(out, {"i": 0.25}, top_k=2).rejection("Heat")
    assert (failure.code, failure.kind) == (ErrorCode.RELATION_NOT_FOUND, "relation_rejected")
    assert 'matched "query" connected to "Heat"' in failure.message
    assert "score=0.250" in failure.message
    candidates = failure.details["candidates"]
    assert len(candidates) == 21
    assert candidates[0] == {"id": "i", "label": "i", "score": 0.25, "direction": "in"}
    assert [c["score"] for c in candidates] == sorted((c["score"] for c in candidates), reverse=True)


def test_on_a_tie_the_outgoing_direction_is_taken_and_the_other_named(judge):
    verdict = judge({"spouse": 0.9, "child": 0.2}, {"spouse": 0.9})
    assert verdict.relation == ScoredItem("spouse", "spouse", 0.9, OUT)
    assert verdict.also == ScoredItem("spouse", "spouse", 0.9, IN)
    assert verdict.details(5)["also"]["direction"] == "in"
    assert judge({"spouse": 0.9}, {"spouse": 0.9}, prefer=IN).relation.direction == IN


def test_a_tie_of_two_relations_is_settled_by_direction_too(judge):
    verdict = judge({"b": 0.9}, {"a": 0.9})
    assert (verdict.relation.id, verdict.also.id) == ("b", "a")


def test_without_a_tie_the_better_direction_is_taken_and_none_other_named(judge):
    verdict = judge({"a": 0.8}, {"b": 0.81})
    assert (verdict.relation.id, verdict.relation.direction, verdict.also) == ("b", IN, None)


def test_an_explicit_direction_is_kept(judge):
    """`(JOIN (R r) e)` is what e has r to: the outgoing direction."""
    verdict = judge({"a": 0.4}, {"a": 0.4, "b": 0.99}, text="(R a)")
    assert (verdict.relation.id, verdict.relation.direction) == ("a", OUT)
    assert judge({}, {"b": 0.99}, text="(R b)") is None
    assert read_relation(" ( R  people.person.spouse_s ) ") == ("people.person.spouse_s", True)
    assert read_relation("R and B") == ("R and B", False)


def test_no_neighbour_no_verdict(judge):
    assert judge() is None


def test_the_exact_id_is_taken_before_what_is_only_written_like_it(judge):
    verdict = judge({"film starring": 0.1}, {"film.starring": 0.1, "film_starring": 0.1}, "film_starring")
    assert (verdict.tier, verdict.relation.id) == (Tier.HIGH, "film_starring")

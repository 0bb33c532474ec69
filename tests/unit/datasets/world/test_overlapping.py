"""The world whose relations come in twos that agree in part."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.world.overlapping import generate_overlapping_world
from kbqa.trajectory import Hop

SIZES = {"cold_start": 3, "train": 90, "validation": 3, "test": 30}


@pytest.fixture(scope="module")
def made():
    return generate_overlapping_world(3, SIZES, "overlap")


def facts(world) -> dict[str, set[tuple[str, str]]]:
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for head, relation, tail in world.triples:
        found[relation].add((head, tail))
    return found


def test_of_two_relations_one_has_half_of_the_facts_or_as_many_wrong_ones(made):
    world, splits = made
    stated = facts(world)
    right = {hop.relation for question in splits.all for hop in question.path}
    shares = []
    for name in right:
        other = name.removesuffix("_recorded") if name.endswith("_recorded") else f"{name}_recorded"
        narrow = stated[other] <= stated[name]
        assert narrow or stated[name] <= stated[other]
        shares.append((narrow, len(stated[other]) / len(stated[name])))
    assert {narrow for narrow, _ in shares} == {True, False}
    assert all(0.3 < share < 0.7 if narrow else 1.4 < share <= 2.0 for narrow, share in shares)
    assert 0 < sum(name.endswith("_recorded") for name in right) < len(right)


def test_the_gold_path_leads_to_the_answers_of_which_there_are_several(made):
    world, splits = made
    ends: defaultdict[tuple[str, Hop], set[str]] = defaultdict(set)
    for head, relation, tail in world.triples:
        ends[head, Hop(relation)].add(tail)
        ends[tail, Hop(relation, inverse=True)].add(head)
    for question in splits.all:
        reached = set(question.topic_entities)
        for hop in question.path:
            reached = {end for node in reached for end in ends[node, hop]}
        assert reached == set(question.answers)
        assert 2 <= len(question.answers) <= 20
    assert [len(question.path) for question in splits.test[:3]] == [1, 2, 3]


def test_a_seed_makes_one_world():
    assert generate_overlapping_world(5, SIZES, "overlap") == generate_overlapping_world(5, SIZES, "overlap")
    assert (
        generate_overlapping_world(5, SIZES, "overlap")[0]
        != generate_overlapping_world(6, SIZES, "overlap")[0]
    )


def test_it_is_a_data_set():
    dataset = load_dataset("world-overlapping", 1)
    assert [graph.name for graph in dataset.graphs] == ["world-overlapping"]
    assert len(dataset.splits.test) == 900

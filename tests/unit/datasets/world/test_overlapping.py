"""The world whose relations come in twos that agree in part."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.world.overlapping import SIZE, generate_overlapping_world
from kbqa.datasets.world.small import generate_world
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


def neighbours(world) -> dict[tuple[str, Hop], set[str]]:
    ends: defaultdict[tuple[str, Hop], set[str]] = defaultdict(set)
    for head, relation, tail in world.triples:
        ends[head, Hop(relation)].add(tail)
        ends[tail, Hop(relation, inverse=True)].add(head)
    return ends


def at_the_end_of(question, ends) -> set[str]:
    """Its gold path."""
    reached = set(question.topic_entities)
    for hop in question.path:
        reached = {end for node in reached for end in ends[node, hop]}
    return reached


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
    ends = neighbours(world)
    for question in splits.all:
        reached = at_the_end_of(question, ends)
        assert reached == set(question.answers)
        assert 2 <= len(question.answers) <= 20
    assert [len(question.path) for question in splits.test[:3]] == [1, 2, 3]


def test_where_no_relation_is_right_one_has_too_few_facts_and_one_too_many():
    world, splits = generate_overlapping_world(3, SIZES, "inexact", exact=False)
    stated = facts(world)
    for relation, right in facts(generate_world(3, SIZE)).items():
        narrow, wide = sorted((stated[relation], stated[f"{relation}_recorded"]), key=len)
        assert narrow <= right < wide
        assert 1.3 < len(wide) / len(right) < 1.6
        # Of each node on the side where nodes have more facts, one is left.
        [end] = {0, 1} - {max((0, 1), key=lambda side: len({fact[side] for fact in right}))}
        assert len(narrow) == len({fact[end] for fact in narrow}) == len({fact[end] for fact in right})
    ends = neighbours(world)
    found = [(at_the_end_of(question, ends), set(question.answers)) for question in splits.all]
    assert all(reached >= answers for reached, answers in found)
    assert sum(reached > answers for reached, answers in found) > 0.7 * len(found)


def test_a_seed_makes_one_world():
    assert generate_overlapping_world(5, SIZES, "overlap") == generate_overlapping_world(5, SIZES, "overlap")
    assert (
        generate_overlapping_world(5, SIZES, "overlap")[0]
        != generate_overlapping_world(6, SIZES, "overlap")[0]
    )


@pytest.mark.parametrize("name", ["world-overlapping", "world-inexact"])
def test_it_is_a_data_set(name):
    dataset = load_dataset(name, 1)
    assert [graph.name for graph in dataset.graphs] == [name]
    assert len(dataset.splits.test) == 900

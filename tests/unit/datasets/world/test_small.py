import hashlib
from collections import defaultdict

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.world.small import MAX_ANSWERS, generate_questions, generate_world

SIZES = {"cold_start": 30, "train": 300, "validation": 30, "test": 90}


@pytest.fixture(scope="module")
def world():
    return generate_world(seed=1)


@pytest.fixture(scope="module")
def splits(world):
    return generate_questions(world, seed=1, sizes=SIZES, kg="world")


def everything(splits):
    return [*splits.cold_start, *splits.train, *splits.validation, *splits.test]


def follow(triples, question):
    """A naive reference: scan all triples for each hop."""
    frontier = set(question.topic_entities)
    for hop in question.path:
        ends = [(t, h) if hop.inverse else (h, t) for h, r, t in triples if r == hop.relation]
        frontier = {end for start, end in ends if start in frontier}
    return frontier


def test_the_world_is_as_large_as_promised(world):
    assert len(world.types) >= 2000
    assert len({relation for _, relation, _ in world.triples}) >= 20


def test_relations_are_domain_type_property(world):
    assert all(relation.count(".") == 2 for _, relation, _ in world.triples)


def test_a_topic_has_eight_relations_around_it(world, splits):
    around = defaultdict(set)
    for head, relation, tail in world.triples:
        around[head].add(relation)
        around[tail].add(f"inverse {relation}")
    degrees = [len(around[q.topic_entities[0]]) for q in splits.test]
    assert sum(degrees) / len(degrees) >= 8


def test_answers_are_exactly_what_the_gold_path_leads_to(world, splits):
    for question in splits.test:
        assert set(question.answers) == follow(world.triples, question)
        assert 1 <= len(question.answers) <= MAX_ANSWERS


def test_one_two_and_three_hops_have_equal_parts(splits):
    hops = [q.hops for q in splits.test]
    assert hops.count(1) == hops.count(2) == hops.count(3) == 30


def test_no_pair_of_topic_and_path_occurs_twice(splits):
    pairs = [(q.topic_entities, q.path) for q in everything(splits)]
    assert len(set(pairs)) == len(pairs)


def test_the_topic_stands_in_the_question(splits):
    assert len(everything(splits)) == sum(SIZES.values())
    assert all(q.topic_entities[0] in q.text for q in everything(splits))


def test_there_are_nodes_without_names_and_events_with_dates(world):
    assert any(kind == "employment" and name.startswith("m.0") for name, kind in world.types.items())
    dates = [t for _, r, t in world.triples if r == "event.event.date"]
    assert dates
    assert all(len(date) == 10 for date in dates)


def test_a_relation_is_asked_for_in_several_ways(splits):
    by_path = defaultdict(set)
    for q in splits.train:
        if q.hops == 1:
            by_path[q.path].add(q.text.replace(q.topic_entities[0], "X"))
    assert sum(len(texts) > 1 for texts in by_path.values()) > len(by_path) / 2


def test_a_seed_gives_the_same_world_and_another_seed_another(world, splits):
    assert generate_world(1) == world
    assert generate_questions(world, 1, SIZES, "world") == splits
    assert generate_world(2) != world


def test_any_size_can_be_had():
    assert len(generate_world(1, size=3.0).types) > 2 * len(generate_world(1).types)


def test_the_world_of_figures_and_promoted_policies_never_changes():
    world = load_dataset("world", seed=1)
    written = hashlib.sha256(world.graph.text.encode())
    for question in everything(world.splits):
        path = [(hop.relation, hop.inverse) for hop in question.path]
        fields = (question.id, question.text, question.answers, question.topic_entities, path)
        written.update(repr(fields).encode())
    assert written.hexdigest() == "2d46313ad2e76e5e58c3406438fe752b0bbeb58ce8213a256a9f17e73b6f9327"

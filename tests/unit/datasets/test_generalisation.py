"""Levels as GrailQA defines them, and splits that have them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.datasets.generalisation import Level, level_of, schema_of, split_by_level, with_levels
from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question


def ask(id_, *relations, topic="t", **fields):
    return Question(id_, f"{id_} ?", ("a",), (topic,), "g", path=tuple(map(Hop, relations)), **fields)


TRAINING = [ask("1", "parent"), ask("2", "parent", "spouse"), ask("3", "born")]


@pytest.mark.parametrize(
    ("question", "level"),
    [
        (ask("q", "parent", topic="another"), Level.IID),
        (ask("q", "parent", "spouse"), Level.IID),
        (ask("q", "spouse", "parent"), Level.COMPOSITIONAL),
        (ask("q", "born", "parent"), Level.COMPOSITIONAL),
        (ask("q", "born", "country"), Level.ZERO_SHOT),
    ],
)
def test_levels_are_those_of_the_definition(question, level):
    assert level_of(schema_of(question), map(schema_of, TRAINING)) is level
    assert with_levels(TRAINING, [question])[0].level == level.value


def test_a_class_and_a_direction_are_schema_too():
    form = "(AND people.person (JOIN (R people.person.children) m.0abc))"
    schema = schema_of(Question("q", "?", (), (), "g", form=form))
    assert schema.items == {"people.person", "people.person.children"}
    other = Question("q", "?", (), (), "g", form=form.replace("m.0abc", "m.0def"))
    assert schema_of(other) == schema
    turned = Question(
        "q", "?", (), (), "g", form=form.replace("(R people.person.children)", "people.person.children")
    )
    assert schema_of(turned) != schema


def test_a_query_has_items_and_a_combination_but_no_entities():
    query = "SELECT ?x WHERE {{ wd:{} wdt:P31 wd:Q5 . wd:{} wdt:P19/wdt:P17 ?x }}"
    one, other = (Question("q", "?", (), (), "g", sparql=query.format(id_, id_)) for id_ in ("Q1", "Q2"))
    assert schema_of(one) == schema_of(other)
    assert schema_of(one).items == {"wd:Q5", "wdt:P19", "wdt:P17"}


def test_a_question_without_a_program_has_no_level():
    question = Question("q", "?", ("a",), ("t",), "g")
    assert schema_of(question) is None
    assert with_levels(TRAINING, [question]) == (question,)
    with pytest.raises(DatasetError, match="no question has a gold program"):
        split_by_level([question], 1, validation=1, test=1)


def drawn(seed, count, relations, topics):
    rng = random.Random(seed)
    names = [f"r{number}" for number in range(relations)]
    return [
        ask(f"q{number}", *rng.choices(names, k=rng.randint(1, 3)), topic=f"t{rng.randrange(topics)}")
        for number in range(count)
    ]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(10, 300),
    relations=st.integers(1, 40),
    topics=st.integers(1, 30),
    shares=st.tuples(st.integers(0, 20), st.integers(1, 30)),
)
def test_splits_have_the_levels_that_they_name(seed, count, relations, topics, shares):
    questions = drawn(seed, count, relations, topics)
    splits = split_by_level(questions, seed, validation=shares[0], test=shares[1])
    parts = (splits.train, splits.validation, splits.test)
    ids = [question.id for part in parts for question in part]
    assert sorted(ids) == sorted(question.id for question in questions)  # disjoint, and none is lost
    held_out = [*splits.validation, *splits.test]
    assert len(held_out) <= sum(shares) + 1
    items = {item for question in splits.train for item in schema_of(question).items}
    combinations = {schema_of(question).combination for question in splits.train}
    for question in held_out:
        schema = schema_of(question)
        assert (question.level == "zero-shot") is (not schema.items <= items)
        assert (question.level == "i.i.d.") is (schema.combination in combinations)
    known = {(question.topic_entities, question.path) for question in splits.train}
    assert known.isdisjoint((question.topic_entities, question.path) for question in held_out)
    chosen = {(question.topic_entities, question.path) for question in splits.validation}
    assert chosen.isdisjoint((question.topic_entities, question.path) for question in splits.test)
    assert split_by_level(questions, seed, validation=shares[0], test=shares[1]) == splits


def test_many_questions_have_all_levels_in_their_shares():
    splits = split_by_level(drawn(1, 3000, 60, 500), 7, validation=100, test=300)
    held_out = [*splits.validation, *splits.test]
    counts = {level: sum(question.level == level for question in held_out) for level in Level}
    assert counts[Level.ZERO_SHOT] == pytest.approx(200, abs=60)
    assert counts[Level.COMPOSITIONAL] == pytest.approx(100, abs=5)
    assert counts[Level.IID] == pytest.approx(100, abs=5)
    assert len(splits.validation) == pytest.approx(100, abs=10)


@pytest.mark.parametrize(("relations", "withheld"), [(60, 6), (19, 1), (9, 0)])
def test_at_most_a_share_of_the_items_is_withheld(relations, withheld):
    questions = drawn(1, 3000, relations, 500)
    splits = split_by_level(questions, 7, validation=300, test=300, withheld=0.1)
    learned = {item for question in splits.train for item in schema_of(question).items}
    assert 0 <= relations - len(learned) <= withheld
    held_out = [*splits.validation, *splits.test]
    counts = {level: sum(question.level == level for question in held_out) for level in Level}
    assert bool(counts[Level.ZERO_SHOT]) is bool(withheld)
    if not withheld:
        assert counts[Level.COMPOSITIONAL] == pytest.approx(300, abs=10)
        assert counts[Level.IID] == pytest.approx(300, abs=10)

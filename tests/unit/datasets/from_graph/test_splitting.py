"""How questions that were made from a graph are divided."""

from __future__ import annotations

import random

from kbqa.datasets.from_graph import split_made
from kbqa.trajectory import Hop, Question


def test_a_policy_may_learn_every_relation_of_a_small_schema():
    rng, relations = random.Random(1), [f"r{number}" for number in range(9)]
    questions = [
        Question(
            f"q{number}",
            f"q{number} ?",
            ("a",),
            (f"topic {rng.randrange(200)}",),
            "g",
            path=tuple(map(Hop, rng.choices(relations, k=rng.randint(1, 3)))),
        )
        for number in range(1000)
    ]
    splits = split_made(questions, 1)
    assert {hop.relation for question in splits.train for hop in question.path} == set(relations)
    for held_out in (splits.validation, splits.test):
        assert {question.level for question in held_out} == {"compositional", "i.i.d."}
        assert 80 <= len(held_out) <= 110

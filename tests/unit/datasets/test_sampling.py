"""Samples of a split."""

from __future__ import annotations

from collections import Counter

import pytest

from kbqa.datasets.sampling import Sample
from kbqa.errors import ConfigurationError
from kbqa.trajectory import Question

LEVELS = ["i.i.d."] * 100 + ["compositional"] * 30 + ["zero-shot"] * 10
QUESTIONS = [Question(str(n), "?", ("a",), (), "g", level=level) for n, level in enumerate(LEVELS)]


def test_a_random_sample_is_drawn_by_its_seed_and_keeps_the_order():
    sample = Sample.read("random:40")
    drawn = sample.of(QUESTIONS, 1)
    assert drawn == sample.of(QUESTIONS, 1) != sample.of(QUESTIONS, 2)
    assert len(drawn) == 40
    assert list(drawn) == sorted(drawn, key=lambda question: int(question.id))
    assert sample.of(QUESTIONS[:3], 1) == tuple(QUESTIONS[:3])


def test_a_sample_by_kind_has_equally_many_of_each_as_far_as_there_are():
    drawn = Sample.read("level:60").of(QUESTIONS, 1)
    assert Counter(question.level for question in drawn) == {
        "i.i.d.": 25,
        "compositional": 25,
        "zero-shot": 10,
    }


@pytest.mark.parametrize("text", ["600", "random", "random:0", "random:-1", "colour:5", "level:many", ""])
def test_what_is_not_a_sample_says_how_one_is_written(text):
    with pytest.raises(ConfigurationError, match=r"is not KIND:N, such as random:600; KIND is random, hops"):
        Sample.read(text)

"""Demonstrations as examples: in epochs, cut as an episode would be."""

from __future__ import annotations

import random
from itertools import islice

from kbqa.cold_start.demonstrations import Demonstration, Passage
from kbqa.cold_start.imitation import epochs, example
from kbqa.trajectory import Question, Segment
from tests.unit.policies_fixtures import make_codec

QUESTION = Question("q", "?", (), (), "g")


def demonstration(observation="one two three four five"):
    told = (Segment("<information>"), Segment(observation, trusted=False), Segment("</information>"))
    return Demonstration(
        QUESTION,
        (
            Passage((Segment("a prompt that is never cut"),), by_policy=False),
            Passage((Segment("<think>t</think>"),), by_policy=True),
            Passage(told, by_policy=False),
            Passage((Segment("<answer>x</answer>"),), by_policy=True),
        ),
        (),
    )


def test_every_epoch_shows_each_demonstration_once_and_then_it_is_over():
    shown = [Demonstration(Question(f"q{n}", "?", (), (), "g"), (), ()) for n in range(5)]
    drawn = [one.question.id for one in epochs(shown, 3, random.Random(1))]
    assert len(drawn) == 15
    assert all(sorted(drawn[at : at + 5]) == [f"q{n}" for n in range(5)] for at in (0, 5, 10))
    assert len({tuple(drawn[at : at + 5]) for at in (0, 5, 10)}) > 1
    in_turn = epochs(shown, 1, random.Random(1))
    assert [len(list(islice(in_turn, 2))) for _ in range(4)] == [2, 2, 1, 0]  # the last batch is short


def test_an_observation_is_cut_as_in_an_episode_and_closed_again():
    codec = make_codec()
    whole, cut = example(demonstration(), codec), example(demonstration(), codec, 4)
    assert codec.decode(whole.token_ids).count("five") == 1
    text = codec.decode(cut.token_ids)
    assert text.startswith("a prompt that is never cut<think>t</think><information>o")
    assert text.endswith("</information><answer>x</answer>")
    assert "five" not in text
    inner = text.partition("<information>")[2].partition("</information>")[0]
    assert len(codec.encode([Segment(inner, trusted=False)])) <= 4
    assert sum(cut.mask) == sum(whole.mask)
    assert example(demonstration("x"), codec, 100) == example(demonstration("x"), codec)

"""Rare kinds are not rare in a sample, by numbers worked out by hand."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kbqa.curricula import BalancedDeck, Deck, balanced, quotas
from kbqa.errors import RunError
from kbqa.trajectory import Question

# Eight of one kind, two of another, one of a third.
ITEMS = [f"{kind}{n}" for kind, count in (("a", 8), ("b", 2), ("c", 1)) for n in range(count)]
QUESTIONS = [Question(name, "?", (), (), "g", operation=name[0]) for name in ITEMS]


def first(name):
    return name[0]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (3, {"a": 1, "b": 1, "c": 1}),
        (5, {"a": 2, "b": 2, "c": 1}),
        (7, {"a": 4, "b": 2, "c": 1}),  # the rare kinds have no more
        (99, {"a": 8, "b": 2, "c": 1}),
        (None, {"a": 1, "b": 1, "c": 1}),  # as many of each as of the rarest
    ],
)
def test_of_every_kind_there_are_as_many_as_it_has(count, expected):
    chosen = balanced(ITEMS, first, count, random.Random(1))
    assert Counter(map(first, chosen)) == expected
    assert len(set(chosen)) == len(chosen)


def test_nothing_is_balanced_out_of_nothing():
    assert balanced([], first, None, random.Random(1)) == []


@pytest.mark.parametrize(
    ("strength", "expected"),
    [
        (0.0, {"a": 8, "b": 2, "c": 1}),
        (1.0, {"a": 4, "b": 4, "c": 3}),  # 11 / 3 each; the first two remainders are rounded up
        (0.5, {"a": 6, "b": 3, "c": 2}),  # weights 2.83, 1.41, 1: 5.94, 2.97, 2.10
    ],
)
def test_quotas_add_up_to_the_whole(strength, expected):
    found = quotas({"a": 8, "b": 2, "c": 1}, 11, strength)
    assert found == expected


def test_a_balanced_deck_shows_rare_kinds_more_often_and_none_again_too_soon():
    deck = BalancedDeck(QUESTIONS, 1, lambda question: question.operation)
    epochs = [[deck[11 * epoch + index].id for index in range(11)] for epoch in range(8)]
    assert all(Counter(map(first, epoch)) == {"a": 4, "b": 4, "c": 3} for epoch in epochs)
    assert len({tuple(map(first, epoch)) for epoch in epochs}) > 1
    # Two epochs draw eight times of the eight a: each once.
    shown = [name for epoch in epochs[:2] for name in epoch if first(name) == "a"]
    assert sorted(shown) == [f"a{n}" for n in range(8)]


def test_a_position_is_the_same_question_whatever_was_asked_before():
    def decks():
        return (
            BalancedDeck(QUESTIONS, 7, lambda question: question.operation, 0.5),
            Deck(QUESTIONS, seed=7),
        )

    for one, other in zip(decks(), decks(), strict=True):
        forwards = [one[position].id for position in range(40)]
        assert [other[position].id for position in reversed(range(40))] == forwards[::-1]


def test_every_epoch_shows_each_question_once_in_an_order_of_its_own():
    questions = QUESTIONS[:5]
    deck = Deck(questions, seed=1)
    epochs = [[deck[epoch * 5 + index].id for index in range(5)] for epoch in range(4)]
    assert all(sorted(epoch) == [q.id for q in questions] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    with pytest.raises(RunError):
        Deck([], seed=1)
    with pytest.raises(RunError):
        BalancedDeck([], 1, lambda question: "")

"""A mixture is drawn by its shares, repeatably, whatever the sizes of its parts."""

from __future__ import annotations

from collections import Counter

import pytest

from kbqa.curricula import BalancedDeck, Deck, MixedDeck
from kbqa.errors import RunError
from kbqa.recipes import load_recipe
from kbqa.recipes.curriculum import CurriculumSection, plain_course
from kbqa.trajectory import Hop, Question

SIZES = {"films": 12, "towns": 3, "people": 6}
SHARES = {"films": 0.1, "towns": 0.65, "people": 0.25}
# Two thirds of each part are of one hop.
QUESTIONS = [
    Question(f"{part}/{n}", "?", (), (), "g", path=(Hop("r"),) * (2 if n % 3 == 2 else 1), part=part)
    for part, size in SIZES.items()
    for n in range(size)
]


def epochs(deck, count: int) -> list[list[Question]]:
    return [
        [deck[len(QUESTIONS) * epoch + place] for place in range(len(QUESTIONS))] for epoch in range(count)
    ]


def parts(questions) -> Counter[str]:
    return Counter(question.part for question in questions)


def test_every_epoch_has_the_shares_within_one():
    for epoch in epochs(MixedDeck(QUESTIONS, 1, SHARES), 5):
        # 2.1, 13.65 and 5.25 of 21
        assert parts(epoch) == {"films": 2, "towns": 14, "people": 5}


def test_within_a_part_none_is_shown_again_before_all_others_were():
    first, *_, last = drawn = epochs(MixedDeck(QUESTIONS, 1, SHARES), 6)
    films = [question.id for epoch in drawn for question in epoch if question.part == "films"]
    assert len(films) == len(set(films)) == 12
    towns = Counter(question.id for question in first if question.part == "towns")
    assert sorted(towns.values()) == [4, 5, 5]
    assert [question.id for question in first] != [question.id for question in last]
    assert [question.part for question in first] != [question.part for question in last]


def test_a_position_is_the_same_question_whatever_was_asked_before():
    def make(seed):
        return MixedDeck(QUESTIONS, seed, SHARES, lambda asked, of: BalancedDeck(asked, of, _hops))

    forwards, backwards, other = make(7), make(7), make(8)
    ids = [forwards[position].id for position in range(100)]
    assert [backwards[position].id for position in reversed(range(100))] == ids[::-1]
    assert [other[position].id for position in range(100)] != ids


def test_a_part_without_questions_leaves_its_share_to_the_others():
    without = [question for question in QUESTIONS if question.part != "towns"]
    deck = MixedDeck(without, 1, SHARES)
    # 0.1 and 0.25 of 0.35, of 18 positions: 5.14 and 12.86
    assert parts(deck[position] for position in range(18)) == {"films": 5, "people": 13}
    with pytest.raises(RunError):
        MixedDeck([], 1, SHARES)


def test_without_a_curriculum_a_mixture_is_drawn_by_its_shares_and_a_single_set_as_ever():
    course = plain_course(QUESTIONS, 3, SHARES)
    assert parts(course[position] for position in range(21)) == {"films": 2, "towns": 14, "people": 5}
    alone, deck = plain_course(QUESTIONS, 3, {}), Deck(QUESTIONS, 3)
    assert [alone[position] for position in range(50)] == [deck[position] for position in range(50)]


def test_the_order_of_a_single_set_never_changes():
    """Figures and resumed runs hang on it."""
    names = [Question(f"{'ab'[n > 5]}{n}", "?", (), (), "g") for n in range(8)]
    assert [Deck(names, 1)[position].id for position in range(12)] == [
        *("a0", "a1", "a3", "a4", "b7", "a2", "b6", "a5"),
        *("a2", "a3", "a1", "a5"),
    ]
    balanced = BalancedDeck(names, 1, lambda question: question.id[0], 0.5)
    assert [balanced[position].id for position in range(12)] == [
        *("b6", "a4", "b7", "b7", "a5", "a1", "a0", "a3"),
        *("a2", "a0", "b6", "a3"),
    ]


def test_a_curriculum_keeps_the_shares_in_every_stage_and_balances_kinds_within_each_part():
    section: CurriculumSection | None = load_recipe(
        "knowcoder-a1",
        {
            "curriculum": {
                "balance": "hops",
                "stages": [{"name": "one", "until": {"steps": 1}}, {"name": "two"}],
            }
        },
    ).curriculum
    assert section is not None
    course = section.build(QUESTIONS, 1, {"films": 0.5, "towns": 0.2, "people": 0.3})
    first = [course[position] for position in range(21)]
    # 10.5, 4.2 and 6.3 of 21; the largest remainder is rounded up
    assert parts(first) == {"films": 11, "towns": 4, "people": 6}
    assert course.after_step({}, 21) is not None
    second = [course[position] for position in range(21, 21 + 12 * 21)]
    assert parts(second) == {"films": 12 * 11, "towns": 12 * 4, "people": 12 * 6}
    # Eleven epochs of the films' own deck, each with six places for either kind.
    assert Counter(question.hops for question in second if question.part == "films") == {1: 66, 2: 66}


def _hops(question: Question) -> str:
    return str(question.hops)

"""What of a test split is known from training, counted by hand."""

from __future__ import annotations

import pytest

from kbqa.datasets.inspection import inspect
from kbqa.datasets.leaks import Leaks, leaks, leaks_between
from kbqa.trajectory import Hop, Question


def ask(id_, text, topic, *relations, **fields):
    return Question(id_, text, ("a",), (topic,), "g", path=tuple(map(Hop, relations)), **fields)


TRAINING = [
    ask("1", "Who is Ada's mother?", "Ada", "mother"),
    ask("2", "Bob's wife's son?", "Bob", "wife", "son"),
]
TEST = [
    ask("3", "the mother of Ada is who ?", "Ada", "mother"),  # the same question in other words
    ask("4", "who is ada's  mother?", "Cleo", "mother"),  # the same text and path, about another topic
    ask("5", "Bob's son?", "Bob", "son"),
    ask("6", "When was Ada born?", "Ada"),
]


def test_shares_are_of_test_questions_and_of_those_with_a_path():
    assert leaks(TRAINING, TEST) == Leaks(
        4, 3, texts=1 / 4, paths=2 / 3, pairs=1 / 3, with_answers=4, answers=1.0, wordings=2 / 4
    )
    assert leaks([], TEST) == Leaks(4, 3, 0.0, 0.0, 0.0, 4, 0.0, 0.0)
    assert leaks(TRAINING, []) == Leaks(0, 0, 0.0, 0.0, 0.0, 0, 0.0, 0.0)


def test_answers_are_compared_as_sets_and_not_if_a_query_computes_them():
    def answered(*answers):
        return Question("1", str(answers), answers, (), "g")

    found = leaks(
        [answered("Ada", "Bob"), answered("3"), answered("true")],
        [answered("bob", "Ada"), answered("Ada"), answered("3"), answered("true"), answered("1995-01-02")],
    )
    assert (found.with_answers, found.answers) == (2, 1 / 2)


@pytest.mark.parametrize(
    ("one", "other", "is_near"),
    [
        ("the director of Heat", "who is Heat 's director ?", True),
        ("name the films Michael Mann directed .", "which films were directed by Michael Mann ?", True),
        ("when was Ada born ?", "where was Ada born ?", False),
        ("the films of Ada", "how many films of Ada", False),
        ("who directed Tale 5 ?", "who directed Tale 7 ?", False),
        ("Who is it?", "What is it?", False),  # function words alone are all that they have
    ],
)
def test_wordings_are_near_if_only_order_and_function_words_differ(one, other, is_near):
    assert leaks([ask("1", one, "a")], [ask("2", other, "b")]).wordings == is_near


def test_each_part_is_compared_with_all_others():
    validation = [ask("7", "Bob's uncle?", "Bob", "uncle"), ask("8", "Bob 's one son ?", "Bob", "son")]
    found = leaks_between({"train": TRAINING, "validation": validation, "test": TEST, "dev": []})
    assert {name: leak.pairs for name, leak in found.items()} == {
        "train": 1 / 2,
        "validation": 1 / 2,
        "test": 2 / 3,
    }


def test_an_inspection_counts_splits_and_tells_levels_that_the_set_does_not():
    found = inspect({"train": TRAINING, "validation": [], "test": TEST})
    assert list(found.splits) == ["train", "test"]
    contents = found.splits["test"]
    assert (contents.questions, contents.hops, contents.without_program) == (4, {0: 1, 1: 3}, 1)
    assert contents.levels == {"i.i.d.": 2, "compositional": 1}
    assert found.leaks == {"test": leaks(TRAINING, TEST)}


def test_levels_of_the_data_set_stay_and_dev_is_trained_on_where_there_is_no_train():
    found = inspect({"dev": TRAINING, "test": [ask("1", "?", "Ada", "mother", level="zero-shot")]})
    assert found.splits["test"].levels == {"zero-shot": 1}
    assert list(found.leaks) == ["test"]
    assert inspect({"test": TEST}).leaks == {}

"""Questions in splits."""

from kbqa.datasets import Splits
from kbqa.trajectory import Question


def ask(id_, *answers):
    return Question(id_, f"about {id_} ?", answers, ("x",), "films")


def test_questions_that_do_not_suit_are_left_out_of_every_split():
    one, two = ask("one", "a"), ask("two", "a", "b")
    splits = Splits(cold_start=(one, two), train=(two, one), validation=(two,), test=(one,))
    kept = splits.only(lambda question: len(question.answers) == 1)
    assert kept == Splits(cold_start=(one,), train=(one,), validation=(), test=(one,))

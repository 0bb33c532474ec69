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


def test_validation_questions_are_taken_out_of_training_and_cold_start():
    train = tuple(ask(str(number), "a") for number in range(20))
    splits = Splits(train[:10], train, (), (ask("t", "a"),)).with_validation(5, seed=1)
    chosen = {question.id for question in splits.validation}
    assert (len(splits.validation), len(splits.train)) == (5, 15)
    assert chosen.isdisjoint(question.id for question in (*splits.cold_start, *splits.train))
    assert {question.id for question in splits.all} == {*map(str, range(20)), "t"}
    assert Splits((), train, (), ()).with_validation(99, seed=1).train == ()

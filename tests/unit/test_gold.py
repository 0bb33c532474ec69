"""Answers beside gold answers of another form, and beside several sets of gold answers: worked values."""

from __future__ import annotations

import pytest

from kbqa.answers import em_set, f1
from kbqa.gold import compare, gold_names, judged
from kbqa.judges import MatchingJudge, Verdict
from kbqa.trajectory import ExecutedAction, Question, Status, Trajectory, Turn


def asked(*answers, variants=(), names=()):
    return Question("q", "who?", answers, (), "g", variants=variants, names=names)


BY_LABEL = asked("Italy", "Spain", names=(("Italy", "Q38"), ("Spain", "Q29", "Q99")))
BY_ID = asked("Q38", "Q29", names=(("Q38", "Italy"), ("Q29", "Spain")))


@pytest.mark.parametrize(
    ("question", "answers", "ids", "expected"),
    [
        (BY_LABEL, ["Q38", "Q29"], [("Q38",), ("Q29",)], 1.0),  # KBQA-R1's answers: ids
        (BY_LABEL, ["q38"], [], 2 / 3),  # precision 1, recall 1/2
        (BY_LABEL, ["Spain", "Q99", "Q29"], [], 2 / 3),  # three names of one gold answer
        (BY_ID, ["Italy", "Spain"], [], 1.0),  # labels that the episode has not looked up
        (BY_ID, ["Italy"], [("Q38", "Q1")], 0.5),  # a label that two entities share means both
        (BY_ID, ["italy.", "France"], [(), ("Q142",)], 0.5),
        (BY_ID, ["Q142"], [("Q142",)], 0.0),
    ],
)
def test_an_id_is_right_for_a_label_and_the_other_way_round(question, answers, ids, expected):
    assert f1(*compare(question, answers, ids)) == pytest.approx(expected)


def test_a_label_of_two_gold_answers_means_both():
    twins = asked("m.1", "m.2", names=(("m.1", "Springfield"), ("m.2", "Springfield")))
    assert em_set(*compare(twins, ["Springfield"], [()]))


def test_of_several_sets_of_gold_answers_the_best_counts():
    question = asked("a", "b", variants=(("a", "b", "c", "d"), ("e",)))
    # F1 of {a, c, x}: 2/5 with the first set, 4/7 with the second, 0 with the third.
    compared = compare(question, ["a", "c", "x"], [])
    assert compared.gold == ("a", "b", "c", "d")
    assert f1(*compared) == pytest.approx(4 / 7)
    assert em_set(*compare(question, ["E"], []))
    assert compare(question, ["x"], []).gold == ("a", "b")


def test_every_name_of_every_set_is_a_gold_name():
    question = asked("Q38", variants=(("Q29",),), names=(("Q38", "Italy"),))
    assert gold_names(question) == {"q38", "italy", "q29"}


class Listening:
    """Accepts one gold set, and keeps what it was asked."""

    def __init__(self, accepted):
        self.accepted, self.heard = accepted, []

    def verdict(self, question, gold, answers, names):
        self.heard.append((gold, answers, names))
        return Verdict(gold == self.accepted, "", (True,))


def run(*shown):
    action = ExecutedAction("get", {}, items=[i for i, _ in shown], labels=[label for _, label in shown])
    return Trajectory((), (Turn(0, 0, (), "", Status.OK, actions=(action,)),), Status.ANSWERED)


def test_a_judge_gets_labels_beside_ids():
    judge = Listening(("Q38",))
    question = asked("Q38", names=(("Q38", "Italy"),))
    assert judged(judge.verdict, question, ["Q142"], [], [run(("Q142", "France"), ("Q1", "x"))]).correct
    assert judge.heard == [(("Q38",), ["Q142"], {"Q38": ("Italy",), "Q142": ("France",)})]


def test_a_judge_is_asked_about_the_nearest_set_first_and_may_accept_another():
    judge = Listening(("c",))
    question = asked("a", variants=(("b",), ("c",)))
    assert judged(judge.verdict, question, ["b"], [], []).correct
    assert [gold for gold, *_ in judge.heard] == [("b",), ("a",), ("c",)]
    assert not judged(MatchingJudge().verdict, question, ["d"], [], []).correct

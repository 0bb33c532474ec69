"""Which corrections feedback makes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kbqa.corrections import corrections_of
from kbqa.feedback import Feedback

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
NAMES = {"k1": "ann", "k2": "bob", "k3": "ann"}


def said(minute, *gold, owner="k1", question="Who made Heat?", **more):
    return Feedback(
        id=f"f{minute}",
        time=BEGAN + timedelta(minutes=minute),
        owner=owner,
        answer_id="a",
        verdict="wrong",
        question=question,
        kg="films",
        topic_entities=("Heat",),
        policy_version="v",
        status="answered",
        answers=("Al",),
        gold=gold or None,
        **more,
    )


def made(*feedback):
    return [(one.id, one.teacher, one.answers) for one in corrections_of(feedback, NAMES)]


def test_the_last_word_of_each_teacher_counts_however_it_writes_the_question():
    first, last = said(0, "Al"), said(1, "Mann", question="who made  heat", owner="k3", comment="see 1995")
    assert made(first, last, said(2, "Val", owner="k2")) == [
        ("f1", "ann", ("Mann",)),
        ("f2", "bob", ("Val",)),
    ]
    [correction] = corrections_of([last], NAMES)
    assert correction.comment == "see 1995"
    question = correction.question()
    assert (question.id, question.kg, question.topic_entities) == ("f1", "films", ("Heat",))


def test_who_only_says_that_an_answer_is_wrong_corrects_nothing_and_withdraws_a_correction():
    assert made(said(0)) == []
    assert made(said(0, "Mann"), said(1)) == []
    assert made(said(0, "Mann"), said(1, owner="k2")) == [("f0", "ann", ("Mann",))]


def test_a_teacher_without_a_key_or_with_one_that_is_gone_has_a_name_of_its_own():
    assert made(said(0, "Mann", owner=""), said(1, "Mann", owner="k9")) == [
        ("f0", "", ("Mann",)),
        ("f1", "k9", ("Mann",)),
    ]

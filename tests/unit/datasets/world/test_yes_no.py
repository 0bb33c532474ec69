"""Yes/no questions: how they are put, and that their answers are those of the form."""

from __future__ import annotations

import random

import pytest

from kbqa.datasets.world.asking import Asker
from kbqa.datasets.world.domains import domains, draw_schema
from kbqa.datasets.world.facts import generate_facts
from kbqa.datasets.world.members import members
from kbqa.datasets.world.walks import Limits
from kbqa.datasets.world.yes_no import yes_no
from kbqa.logical_forms.algebra import Ask, Entity
from kbqa.logical_forms.s_expression import parse_s_expression

LIMITS = Limits(answers=40, members=60, lookups=80, returns=True)


def asked(question="", phrase="the pilots of Delta", *, is_plural=True):
    rng = random.Random(1)
    return {yes_no(rng, "Ann Lee", phrase, question, is_plural=is_plural) for _ in range(99)}


@pytest.mark.parametrize(
    ("question", "turned"),
    [
        ("what did Boeing build", "did Boeing build Ann Lee ?"),
        ("which planes does Delta own", "does Delta own Ann Lee ?"),
        ("what is the hub of Delta", "is the hub of Delta Ann Lee ?"),
        ("in which country is Delta registered", "is Delta registered in Ann Lee ?"),
        ("where was Delta founded", "was Delta founded in Ann Lee ?"),
        ("who flies Delta", "is it true that Ann Lee flies Delta ?"),
    ],
)
def test_a_question_is_turned_into_a_yes_no_question(question, turned):
    assert turned in asked(question)


@pytest.mark.parametrize("question", ["", "what is behind Delta", "who are the pilots of Delta", "how is it"])
def test_a_question_that_cannot_be_turned_is_asked_by_its_phrase(question):
    texts = asked(question)
    assert "is Ann Lee among the pilots of Delta ?" in texts
    assert all("Ann Lee" in text and "the pilots of Delta" in text for text in texts)


def test_one_thing_is_asked_about_as_one():
    assert "is Ann Lee the pilot of Delta ?" in asked(phrase="the pilot of Delta", is_plural=False)


def test_half_of_the_answers_are_no_and_all_are_those_of_the_form():
    rng = random.Random(4)
    facts = generate_facts(draw_schema(domains()["airlines"], 1), rng)
    asker = Asker(facts, "airlines", rng, LIMITS)
    questions = [asker.ask(str(number), "boolean") for number in range(120)]
    for question in questions:
        form = parse_s_expression(question.form)
        assert isinstance(form, Ask)
        assert isinstance(form.node, Entity)
        holds = form.node.id in members(facts, form.source, apart=[question.topic_entities[0]])
        assert question.answers == (str(holds).lower(),)
        assert question.sparql.startswith("ASK {")
        assert facts.names[form.node.id] in question.text
    assert 40 < sum(question.answers == ("true",) for question in questions) < 80


def test_what_is_asked_about_is_of_the_kind_of_the_members():
    """Otherwise its kind would tell the answer."""
    rng = random.Random(5)
    facts = generate_facts(draw_schema(domains()["airlines"], 2), rng)
    asker = Asker(facts, "airlines", rng, LIMITS)
    for number in range(40):
        form = parse_s_expression(asker.ask(str(number), "boolean").form)
        assert isinstance(form, Ask)
        assert isinstance(form.node, Entity)
        found = {facts.kinds[str(node)] for node in members(facts, form.source) if str(node) in facts.kinds}
        assert facts.kinds[form.node.id] in found

"""Made questions in the words of a chat model, against a real server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fastapi import Response

from kbqa.chat import ChatClient, ChatModel
from kbqa.datasets.from_graph import Paraphraser, make_questions
from kbqa.datasets.from_graph.paraphrasing import Asked, objection
from kbqa.kg.embedded.oxigraph import OxigraphStore
from tests.chat_server import serve
from tests.unit.datasets.from_graph.test_making import check_answers, film_facts
from tests.unit.datasets.world.wordnet import lexicon_or_skip

COUNT = 40


@pytest.fixture(scope="module")
def server():
    with serve() as chat:
        yield chat


@pytest.fixture(scope="module")
def store():
    lexicon_or_skip()
    return OxigraphStore.from_triples(film_facts())


@pytest.fixture(scope="module")
def templates(store):
    return make_questions(store, "films", COUNT)


@pytest.fixture
def make(server, store):
    """`make(script)`: questions that are reworded by what a server replies to each prompt."""
    server.asked.clear()

    def make_(script, store=store):
        server.script = lambda body: script(json.loads(body["messages"][-1]["content"]))
        model = ChatModel("wordy", server.url, timeout_s=5, attempts=2, back_off_s=0.001)
        with ChatClient(model) as client:
            return make_questions(store, "films", COUNT, paraphraser=Paraphraser(client))

    return make_


def test_questions_get_the_words_of_a_model_and_keep_programs_and_answers(make, store, templates):
    made = make(lambda asked: f'"Please say: {asked["question"]}"')
    assert [replace(one, text="", wording="") for one in made.questions] == [
        replace(one, text="", wording="") for one in templates.questions
    ]
    assert [one.text for one in made.questions] == [f"Please say: {one.text}" for one in templates.questions]
    assert {one.wording for one in made.questions} == {"model:wordy"}
    assert (made.paraphrased, made.refused) == (COUNT, {})
    check_answers(made.questions, store)


def test_a_model_is_sent_the_question_with_its_names_and_relations(make, server, templates):
    make(lambda asked: asked["question"])
    sent = [json.loads(body["messages"][-1]["content"]) for body in server.asked]
    assert sorted(one["question"] for one in sent) == sorted(one.text for one in templates.questions)
    for one in sent:
        assert all(name in one["question"] for name in one["names"])
        assert set(one["relations"]) <= {"directed by", "release year", "has genre", "starred actors"}
        assert one["relations"]


def test_words_that_fail_a_check_are_not_taken(make, templates):
    def script(asked):
        text = asked["question"]
        wrong = (text.upper(), f"{text}\nor so", "who ?", f"{text} in 2001")
        return wrong[len(text) % len(wrong)]

    made = make(script)
    assert {"a name is missing", "not one line", "too short or too long", "other numbers"} <= set(
        made.refused
    )
    assert made.refused.total() + made.paraphrased == COUNT
    for before, after in zip(templates.questions, made.questions, strict=True):
        if not after.wording.startswith("model:"):
            assert after == before


def test_words_that_give_the_answer_away_are_not_taken(make):
    facts = OxigraphStore.from_triples([("Heat", "directed by", "Michael Mann")])
    made = make(lambda asked: f"{asked['question']} , as in Heat by Michael Mann ?", facts)
    assert made.questions
    assert made.paraphrased == sum(one.operation in ("boolean", "count") for one in made.questions)
    assert made.refused == {"the question names the answer": len(made.questions) - made.paraphrased}


def test_words_of_another_question_are_not_taken(make, templates):
    paths = [one for one in templates.questions if one.operation == "path" and not one.text.startswith("is ")]
    one, other = next(
        (a, b)
        for a in paths
        for b in paths
        if a.topic_entities == b.topic_entities and set(a.answers) != set(b.answers)
    )
    made = make(lambda asked: other.text.upper() if asked["question"] == one.text else asked["question"])
    kept = {question.id: question for question in made.questions}
    assert kept[one.id] == one
    assert made.paraphrased == 0
    assert made.refused["the same words"] == COUNT - 1


def test_a_model_that_fails_stops_nothing_and_is_soon_left_alone(make, server, templates):
    made = make(lambda asked: Response("down", 503))
    assert made.questions == templates.questions
    assert made.refused["the model gave no reply"] >= 16
    assert made.refused["not sent, because the model failed"] > 0
    assert made.refused.total() == COUNT
    assert len(server.asked) <= 2 * (16 + 8)
    assert "check that it is running" in made.model_error


def test_some_failures_cost_only_their_own_questions(make, server):
    made = make(
        lambda asked: Response("no", 400) if len(server.asked) % 5 == 0 else f"Say: {asked['question']}"
    )
    assert made.refused == {"the model gave no reply": COUNT - made.paraphrased}
    assert 0 < made.paraphrased < COUNT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Which films made after 1995 star Al Pacino?", ""),
        ("Which films made after 1995 star al pacino?", "a name is missing"),
        ("Which films made after 1995 star Al Pacinos?", "a name is missing"),
        ("Which films made after 1996 star Al Pacino?", "other numbers"),
        ("Which films star Al Pacino?", "other numbers"),
        ("Al Pacino, 1995", ""),
        ("Al Pacino", "too short or too long"),
        (f"Which films after 1995 star Al Pacino, {'really ' * 30}?", "too short or too long"),
        ("Which films after 1995\nstar Al Pacino?", "not one line"),
        ("", "not one line"),
    ],
)
def test_what_a_wording_must_have(text, reason):
    asked = Asked("the films starring Al Pacino and released after 1995 ?", ("Al Pacino",), ("starring",))
    assert objection(asked, text) == reason

"""Kinds, tiers and patterns of questions, from paths, forms and queries."""

from __future__ import annotations

import pytest

from kbqa.curricula import Tiers, pattern, reasoning_steps, representatives, stratum
from kbqa.trajectory import Hop, Question

FORM = "(AND film.film (JOIN film.film.director m.0abc))"
# Two branches and their merger: three steps, though five triples and one join might be counted as well.
QUERY = "SELECT ?x WHERE { <urn:m1> <urn:a> ?y . ?y <urn:b> ?x . <urn:m2> <urn:c> ?x }"


def ask(id_="q", **fields):
    return Question(id_, "?", ("x",), fields.pop("topics", ("Ada",)), "g", **fields)


def path(*relations):
    return tuple(Hop(name.removeprefix("^"), inverse=name.startswith("^")) for name in relations)


@pytest.mark.parametrize(
    ("question", "steps", "tier"),
    [
        (ask(path=path("a")), 1, "easy"),
        (ask(path=path("a", "b")), 2, "medium"),
        (ask(path=path("a", "b", "c")), 3, "hard"),
        (ask(form=FORM), 2, "medium"),  # Find_relation, Merge
        (ask(sparql=QUERY), 4, "hard"),  # a, then b, then c, then all
        (ask(path=path("a", "b"), sparql="SELECT COUNT(?x) WHERE { <urn:m> <urn:a> ?x }"), 2, "medium"),
        (ask(path=path("a"), form="(JOIN broken"), 1, "easy"),  # what cannot be read is not segmented
        (ask(), 0, None),
    ],
)
def test_difficulty_is_the_number_of_reasoning_steps(question, steps, tier):
    assert reasoning_steps(question) == steps
    assert Tiers(easy=1, medium=2).of(question) == tier


def test_a_question_has_a_kind_by_every_key():
    question = ask(path=path("a", "b"), operation="count", level="zero-shot", topics=())
    kinds = {by: stratum(question, by) for by in ("hops", "steps", "operation", "level", "topics")}
    assert kinds == {"hops": "2", "steps": "2", "operation": "count", "level": "zero-shot", "topics": "0"}
    assert (stratum(ask(), "operation"), stratum(ask(), "level")) == ("path", "unknown")


def test_a_pattern_leaves_entities_out_and_its_shape_relations_too():
    films = ask(path=path("^starring", "director"), topics=("Al P",))
    other_topic = ask(path=path("^starring", "director"), topics=("Val K",))
    books = ask(path=path("^author", "genre"))
    there_and_back = ask(path=path("^author", "author"))
    assert pattern(films) == pattern(other_topic) == "* ^starring > director"
    assert pattern(films) != pattern(books)
    assert pattern(films, "shape") == pattern(books, "shape") == "* ^a > b"
    assert pattern(there_and_back, "shape") == "* ^a > a"
    assert pattern(ask(path=path("a"), operation="count")) != pattern(ask(path=path("a")))
    assert pattern(ask()) is None


def test_forms_and_queries_have_patterns():
    other = FORM.replace("m.0abc", "m.0xyz")
    assert pattern(ask(form=FORM)) == pattern(ask(form=other))
    assert "m.0abc" not in pattern(ask(form=FORM))
    renamed = FORM.replace("film.film.director", "book.book.author").replace("film.film ", "book.book ")
    assert pattern(ask(form=FORM)) != pattern(ask(form=renamed))
    assert pattern(ask(form=FORM), "shape") == pattern(ask(form=renamed), "shape")
    assert pattern(ask(sparql=QUERY)) == pattern(ask(sparql=QUERY.replace("m1", "m7").replace("?y", "?z")))
    assert pattern(ask(sparql=QUERY)) != pattern(ask(sparql=QUERY + " LIMIT 1"))
    assert pattern(ask(sparql="DELETE everything")) is None


def test_so_many_questions_of_a_pattern_are_kept_and_all_without_one():
    questions = [
        ask("q0", path=path("a", "b")),
        ask("q1", path=path("a", "b"), topics=("Bob",)),
        ask("q2", path=path("c", "d")),
        ask("q3"),
        ask("q4"),
        ask("q5", path=path("a", "b")),
    ]
    assert [q.id for q in representatives(questions, 1)] == ["q0", "q2", "q3", "q4"]
    assert [q.id for q in representatives(questions, 2)] == ["q0", "q1", "q2", "q3", "q4"]
    assert [q.id for q in representatives(questions, 1, "shape")] == ["q0", "q3", "q4"]

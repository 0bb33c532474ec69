"""Gold paths that are followed in small graphs, counted by hand."""

from __future__ import annotations

import pytest

from kbqa.datasets.gold_paths import GoldPaths, gold_paths
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.trajectory import Hop, Question

_DIRECTED = (Hop("directed_by"),)
_COLLEAGUES = (Hop("directed_by"), Hop("directed_by", inverse=True))


@pytest.fixture
def films():
    return OxigraphStore.from_triples(
        [
            ("Heat", "directed_by", "Michael Mann"),
            ("Heat", "directed_by", "Paul Morrissey"),
            ("Ali", "directed_by", "Michael Mann"),
            ("Trash", "directed_by", "Paul Morrissey"),
        ]
    )


def _question(answers: tuple[str, ...], topic: str = "Heat", path: tuple[Hop, ...] = _DIRECTED) -> Question:
    return Question("1", "?", answers, (topic,), "films", path=path)


def test_a_path_that_leads_to_more_than_the_gold_answers_is_right_in_part(films):
    questions = [_question(("Michael Mann",)), _question(("Michael Mann", "Paul Morrissey"))]
    found = gold_paths(films, questions)
    assert found == GoldPaths(questions=2, exact=1, hits=1.5)
    assert found.rhits1 == 0.75


@pytest.mark.parametrize("answers", [("Ali", "Trash"), ("Ali", "Trash", "Heat")])
def test_the_topic_may_be_left_out_of_a_path_that_returns_to_it(films, answers):
    assert gold_paths(films, [_question(answers, path=_COLLEAGUES)]) == GoldPaths(1, 1, 1.0)


@pytest.mark.parametrize(
    "question",
    [
        _question(("Michael Mann",), topic="Collateral"),
        _question(("Michael Mann",), path=(Hop("written_by"),)),
        _question(("1995",), topic="Michael Mann"),
    ],
)
def test_a_path_that_leads_nowhere_is_never_right(films, question):
    assert gold_paths(films, [question]) == GoldPaths(1, 0, 0.0)


def test_a_local_name_of_several_relations_is_not_followed():
    store = OxigraphStore.from_triples(
        [("m.01", "film.film.name", "Heat"), ("m.01", "people.person.name", "Heat")]
    )
    assert gold_paths(store, [_question(("Heat",), "m.01", (Hop("name"),))]) == GoldPaths(1, 0, 0.0)


def test_questions_without_a_path_do_not_count(films):
    assert gold_paths(films, [_question(("Michael Mann",), path=())]).rhits1 == 0.0

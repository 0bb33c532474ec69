"""Every class with an episode that belongs to it."""

from __future__ import annotations

import pytest

from kbqa.evaluation.failures import AnswerOutcome, Error, FailureClass, error, failure, outcome
from kbqa.trajectory import ExecutedAction, Status
from tests.unit.episodes import question
from tests.unit.evaluation.cases import EMPTY, FAILED, FOUND, episode

MISSING = ExecutedAction(
    "get_tail_entities", {"entity": "Eva"}, "KG_ENTITY_NOT_FOUND", kind="entity_not_in_kg"
)


@pytest.mark.parametrize(
    ("run", "hit", "expected"),
    [
        (episode("Byron", queries=[FOUND]), True, AnswerOutcome.DIRECT_HIT),
        (episode("Byron", queries=[EMPTY, FOUND]), True, AnswerOutcome.RECOVERED),
        (episode("Byron", queries=[FAILED, FOUND]), True, AnswerOutcome.RECOVERED),
        (episode("Eve", queries=[FOUND]), False, AnswerOutcome.INCORRECT),
    ],
)
def test_outcomes_are_knowcoders(run, hit, expected):
    assert outcome(run, hit=hit) is expected


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (episode("Eve"), FailureClass.REFUSED),
        (episode(status=Status.UNPARSABLE), FailureClass.REFUSED),
        (episode("Eve", queries=[FAILED]), FailureClass.EXECUTION_FAILURE),
        (episode("Eve", queries=[FOUND, FAILED]), FailureClass.EXECUTION_FAILURE),
        (episode(queries=[FOUND], status=Status.UNPARSABLE), FailureClass.EXECUTION_FAILURE),
        (episode(queries=[FOUND], status=Status.TIMED_OUT), FailureClass.EXECUTION_FAILURE),
        (episode("Eve", queries=[FAILED, FOUND]), FailureClass.INCORRECT_LOGIC),
        (episode("Eve", queries=[EMPTY]), FailureClass.INCORRECT_LOGIC),
        (episode(queries=[FOUND], status=Status.OUT_OF_TURNS), FailureClass.INCORRECT_LOGIC),
    ],
)
def test_failures_are_learning_to_refines(run, expected):
    assert failure(run, correct=False) is expected
    assert failure(run, correct=True) is None


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (episode("Eve", queries=[FOUND]), Error.HALLUCINATION),
        (episode("Byron", "Eve", queries=[FOUND]), Error.HALLUCINATION),
        (episode(queries=[MISSING], status=Status.OUT_OF_TURNS), Error.HALLUCINATION),
        (episode("1788", queries=[FOUND]), Error.HALLUCINATION),  # no count of two things
        (episode("Annabella", queries=[FOUND]), Error.CONSTRAINT),
        (episode("Byron", "Annabella", queries=[FOUND]), Error.CONSTRAINT),
        (episode("2", queries=[FOUND]), Error.CONSTRAINT),
        (episode(queries=[FOUND], status=Status.OUT_OF_TURNS), Error.CONSTRAINT),
        (episode("Ada", queries=[EMPTY]), Error.RELATION),  # the topic itself
        (episode(queries=[EMPTY], status=Status.OUT_OF_TURNS), Error.RELATION),
    ],
)
def test_errors_are_knowcoders(run, expected):
    assert error(question("Byron"), run, f1=0.5) is expected
    assert error(question("Byron"), run, f1=1.0) is None


def test_an_answer_that_was_seen_by_its_id_is_no_hallucination():
    run = episode("the poet", queries=[FOUND], ids=[("Byron",)])
    assert error(question("Byron"), run, f1=0.0) is Error.CONSTRAINT


def test_a_number_of_thousands_of_digits_is_a_hallucination():
    assert error(question("Byron"), episode("9" * 9000, queries=[FOUND]), f1=0.0) is Error.HALLUCINATION

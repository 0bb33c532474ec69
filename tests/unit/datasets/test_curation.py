"""Gold queries run again: on a real store, and on tools whose server is away."""

from __future__ import annotations

import pytest

from kbqa.answers import f1
from kbqa.datasets.curation import Exclusion, curate
from kbqa.errors import GraphUnavailableError
from kbqa.gold import compare
from kbqa.kg.actions import ErrorCode, ErrorKind, Failure, Success
from kbqa.trajectory import Question


class Answering:
    """Graph tools that give the same result to every action."""

    def __init__(self, *results):
        self.results, self.batches = results, []

    def execute(self, kg, actions, *, graph=None):
        self.batches.append(len(actions))
        return [self.results[number % len(self.results)] for number in range(len(actions))]


def rows(*found, variables=("x",)):
    return Success(tuple(found), len(found), details={"variables": list(variables)})


def ask(sparql="SELECT ?x { ?x ?y ?z }"):
    return Question("q", "?", (), (), "wikidata", sparql=sparql)


def uri(local):
    return {"type": "uri", "value": f"http://www.wikidata.org/{local}"}


ONE = {"x": uri("entity/Q7")}


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (rows(ONE), "Q7"),
        (rows({"x": {"type": "literal", "value": "12"}}), "12"),
        (
            rows(
                {"x": uri("entity/Q7"), "label": {"type": "literal", "value": "Ada"}},
                variables=("x", "label"),
            ),
            "Q7",
        ),
        (Success((), 0, details={"boolean": False}), "false"),
        (rows(), Exclusion.NO_ROW),
        (rows(ONE, ONE), Exclusion.SEVERAL_ROWS),
        (Success((ONE,), 9, truncated=True, details={"variables": ["x"]}), Exclusion.SEVERAL_ROWS),
        (rows({}), Exclusion.NO_TERM),
        (rows({"x": {"type": "bnode", "value": "b0"}}), Exclusion.NO_TERM),
        (rows({"x": uri(".well-known/genid/0a")}), Exclusion.NO_TERM),
        (Failure(ErrorCode.SERVER_ERROR, ErrorKind.QUERY_TIMEOUT, "3 s"), Exclusion.TIMED_OUT),
        (Failure(ErrorCode.FORMAT_ERROR, ErrorKind.QUERY_SYNTAX, "1:3"), Exclusion.FAILED),
    ],
)
def test_exactly_one_row_with_a_term_is_kept(result, answer):
    found = curate([ask()], Answering(result), "mine")
    if isinstance(answer, Exclusion):
        assert (found.kept, dict(found.excluded)) == ([], {answer: 1})
    else:
        [question] = found.kept
        assert (question.answers, question.kg, dict(found.excluded)) == ((answer,), "mine", {})


def test_an_answer_keeps_the_label_that_the_graph_gives():
    [question] = curate([ask()], Answering(rows({"x": uri("entity/Q38") | {"label": "Italy"}})), "mine").kept
    assert (question.answers, question.names) == (("Q38",), (("Q38", "Italy"),))
    # Learning-to-Refine answers by either: 1.46 for a right answer after one query.
    for answer in ("Q38", "Italy"):
        assert f1(*compare(question, [answer], [])) == 1.0


def test_questions_are_asked_in_batches_and_those_without_a_query_are_counted():
    tools = Answering(rows(ONE))
    found = curate([ask("")] * 3 + [ask()] * 200, tools, "g")
    assert (len(found.kept), dict(found.excluded)) == (200, {Exclusion.NO_QUERY: 3})
    assert sum(tools.batches) == 200
    assert max(tools.batches) <= 64


@pytest.mark.parametrize("kind", [ErrorKind.BACKEND_UNAVAILABLE, ErrorKind.OVERLOADED])
def test_a_server_that_is_away_says_nothing_of_the_questions(kind):
    with pytest.raises(GraphUnavailableError, match="away"):
        curate([ask()], Answering(Failure(ErrorCode.SERVER_ERROR, kind, "away")), "g")

"""Set F1, held against trec_eval's definition, and against the challenge's own client if it is installed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kbqa.errors import GraphUnavailableError
from kbqa.evaluation import evaluate
from kbqa.evaluation.text2sparql import Values, set_f1, set_f1_of, values_of
from kbqa.judges import MatchingJudge
from kbqa.kg.actions import EXECUTE_SPARQL, ErrorCode, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import ExecutedAction
from tests.unit.episodes import question
from tests.unit.evaluation.cases import EMPTY, episode

TRIPLES = [("Ada", "parent", f"p{number}") for number in range(4)] + [("Eve", "parent", "p0")]
TOOLS = LocalGraphTools(FixedGraphs({"world": OxigraphStore.from_triples(TRIPLES)}), max_items=3)
PARENTS = "SELECT ?x ?y WHERE { ?x <urn:kbqa:r:parent> ?y }"
OF_EVE = "SELECT ?x WHERE { <urn:kbqa:e:Eve> <urn:kbqa:r:parent> ?x }"
NONE = "SELECT ?x WHERE { ?x <urn:kbqa:r:child> ?y }"


def found(*texts):
    return Values(frozenset(texts))


YES, NO = (Values(frozenset({"true"}), answer) for answer in (True, False))


@pytest.mark.parametrize(
    ("system", "gold", "expected"),
    [
        (found("a", "b", "c"), found("a", "b"), 0.8),  # P = 2/3, R = 1
        (found("a", "b"), found("a", "b", "c", "d"), 2 / 3),  # P = 1, R = 1/2
        (found("c"), found("a"), 0.0),
        (found(), found("a"), 0.0),
        (NO, YES, 1.0),  # what the system's ASK answers is not compared
        (YES, NO, 0.0),
        (NO, NO, 0.0),
    ],
)
def test_worked_values_of_trec_eval(system, gold, expected):
    assert set_f1(system, gold) == pytest.approx(expected)


def test_values_are_those_of_all_columns_and_rows():
    names = {"Ada", "Eve", "p0", "p1", "p2", "p3"}
    # Five rows, of which the graph gives three at a time.
    assert {value.rpartition(":")[2] for value in values_of(PARENTS, TOOLS, "world").found} == names
    assert values_of("ASK { ?x ?y ?z }", TOOLS, "world") == YES
    assert values_of(NONE, TOOLS, "world") == values_of("SELECT", TOOLS, "world") == Values()


def test_a_graph_that_cannot_answer_is_no_wrong_query():
    class Away:
        def execute(self, kg, actions, *, graph=None):
            return [Failure(ErrorCode.SERVER_ERROR, ErrorKind.OVERLOADED, "too many queries wait")]

    with pytest.raises(GraphUnavailableError, match="too many queries wait"):
        values_of(PARENTS, Away(), "world")


def asked(sparql):
    return replace(question("p0", topic="Ada"), sparql=sparql)


def wrote(sparql):
    """A run that executed a query and answers with the node p0, which it found."""
    action = ExecutedAction(EXECUTE_SPARQL, {"query": sparql}, None, ("p0",), ("p0",))
    return episode("p0", queries=[action], ids=[["p0"]])


def test_the_query_behind_the_answers_is_compared_with_the_gold_query():
    assert set_f1_of(asked(OF_EVE), [wrote(OF_EVE)], TOOLS) == 1.0
    assert set_f1_of(asked(PARENTS), [wrote(OF_EVE)], TOOLS) == pytest.approx(2 / 7)
    assert set_f1_of(asked(OF_EVE), [episode(queries=[EMPTY])], TOOLS) == 0.0
    for left_out in ("", NONE):
        assert set_f1_of(asked(left_out), [wrote(OF_EVE)], TOOLS) is None


def test_it_is_a_metric_where_it_is_wanted():
    cases = [(asked(gold), [wrote(OF_EVE)]) for gold in (OF_EVE, PARENTS, NONE)]
    metrics = evaluate(cases, MatchingJudge(), tools=TOOLS, text2sparql=True).summary.metrics
    assert metrics["set_f1"] == pytest.approx((1 + 2 / 7) / 2)
    assert "set_f1" not in evaluate(cases, MatchingJudge(), tools=TOOLS).summary.metrics


def test_the_mean_is_that_of_the_challenges_own_client():
    theirs = pytest.importorskip(
        "text2sparql_client.utils.evaluation_metrics",
        reason="install text2sparql-client to compare set F1 with the challenge's own number",
    )
    rng = random.Random(0)

    def draw():
        if rng.random() < 0.2:
            return rng.choice((YES, NO))
        return found(*(f"v{rng.randrange(8)}" for _ in range(rng.randrange(5))))

    def as_json(values):
        if values.answer is not None:
            return {"boolean": values.answer}
        bindings = [{"x": {"value": value}} for value in values.found]
        return {"head": {"vars": ["x"]}, "results": {"bindings": bindings}}

    pairs = [(draw(), draw()) for _ in range(200)]
    systems, golds = ({}, {})
    for number, pair in enumerate(pairs):
        for side, values in zip((systems, golds), pair, strict=True):
            side |= theirs.DBpediaDict2PytrecDict(f"q{number}").tranform(as_json(values))
    average = theirs.Evaluation("kbqa").evaluate(systems, golds)["average"]
    counted = [set_f1(system, gold) for system, gold in pairs if gold.found or gold.answer is not None]
    assert sum(counted) / len(counted) == pytest.approx(average["set_F"])

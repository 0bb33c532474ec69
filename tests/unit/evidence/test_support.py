"""Answers with what supports them, on runs worked by hand and held against a graph."""

from __future__ import annotations

import pytest

from kbqa.evidence import CitedQuery, Claims, boolean_of, confirmed, supported_share
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.naming import relation_iri
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import ExecutedAction
from tests.unit.episodes import query
from tests.unit.evaluation.cases import episode

TRIPLES = [("Ada", "parent", "Byron"), ("Ada", "father", "Byron"), ("Byron", "parent", "John")]
WORLD = LocalGraphTools(FixedGraphs({"world": OxigraphStore.from_triples(TRIPLES)}))
PARENTS = f"SELECT ?x WHERE {{ ?y <{relation_iri('parent')}> ?x }}"
EXISTS = f"ASK {{ ?x <{relation_iri('parent')}> ?y }}"


def supported(*runs, topics=("Ada",)):
    return confirmed(runs, frozenset(topics), Claims(WORLD, "world"))


def sparql(text, *found, **details):
    return ExecutedAction("execute_sparql", {"query": text}, None, found, found, details=details)


def test_an_answer_that_the_graph_confirms_is_supported_and_one_that_it_does_not_is_none():
    run = episode(
        "Byron",
        "Annabella",
        "Eve",
        queries=[query(found=("Byron", "Annabella"))],
        ids=[["Byron"], ["Annabella"], []],
    )
    answers = supported(run)
    assert [(answer.given.text, answer.id, answer.evidence) for answer in answers] == [
        ("Byron", "Byron", [("Ada", "parent", "Byron")]),
        ("Annabella", "Annabella", None),  # the run says that it was retrieved, the graph does not know it
        ("Eve", None, None),  # out of thin air
    ]
    assert supported_share(answers) == pytest.approx(1 / 3)
    assert supported_share(supported(episode())) is None


def test_where_a_chain_does_not_hold_other_evidence_may():
    wrong = query("child", found=("Byron",))
    run = episode("Byron", queries=[wrong, sparql(PARENTS, "Byron", "John")], ids=[["Byron"]])
    (answer,) = supported(run)
    assert isinstance(answer.evidence, CitedQuery)
    assert [row["x"]["id"] for row in answer.evidence.rows] == ["Byron"]
    (answer,) = supported(episode("Byron", queries=[wrong], ids=[["Byron"]]), run)
    assert (answer.given.support, isinstance(answer.evidence, CitedQuery)) == ("2/2", True)


def test_a_yes_is_supported_by_an_ask_that_says_so_and_a_no_is_not():
    asked = sparql(EXISTS, boolean=True)
    assert supported_share(supported(episode("Yes", queries=[asked]))) == 1
    assert supported_share(supported(episode("no", queries=[asked]))) == 0


def test_what_is_a_yes_or_no():
    assert {text: boolean_of(text) for text in ("Yes", "TRUE", "no.", "false", "maybe")} == {
        "Yes": True,
        "TRUE": True,
        "no.": False,
        "false": False,
        "maybe": None,
    }


@pytest.mark.parametrize("returning", [True, False])
def test_a_topic_to_which_a_form_comes_back_is_supported_by_a_query_that_may_return_it(returning):
    """The children of the parents of Ada are Ada; otherwise, a form does not denote what it names."""
    form = "(JOIN parent (JOIN (R parent) Ada))"
    details = {"expression": form, "return": True} if returning else {"expression": form}
    found = ExecutedAction("expand", {"form": form}, None, ("Ada",), ("Ada",), details=details)
    (answer,) = supported(episode("Ada", queries=[found], ids=[["Ada"]]))
    if returning:
        assert isinstance(answer.evidence, CitedQuery)
        assert [row["x"]["id"] for row in answer.evidence.rows] == ["Ada"]
    else:
        assert answer.evidence is None

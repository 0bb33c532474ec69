"""The facts that lead to a member of a form, on a graph drawn by hand, and against the members themselves."""

from __future__ import annotations

import pytest

from kbqa.kg.actions import Action
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.retrieval.ways import way
from kbqa.kg.tools import LocalGraphTools
from kbqa.logical_forms.s_expression import parse_s_expression

TRIPLES = [
    ("Heat", "director", "Mann"),
    ("Ali", "director", "Mann"),
    ("Heat", "star", "Pacino"),
    ("Ali", "star", "Smith"),
    ("Ali", "star", "Pacino"),
    ("Ali", "minutes", "157"),
    ("Heat", "minutes", "170"),
    ("Mann", "likes", "Mann"),
    ("Heat", "gross", "g1"),
    ("g1", "dollars", "187"),
    ("Heat", "rank", "1"),
    ("Heat", "rank", "2"),
]


@pytest.fixture(scope="module")
def store():
    return OxigraphStore.from_triples(TRIPLES)


@pytest.mark.parametrize(
    ("form", "member", "facts"),
    [
        ("(JOIN (R director) Heat)", "Mann", [0]),
        ("(JOIN director Mann)", "Ali", [1]),
        # Of two films of Mann, the one that the question does not name.
        ("(JOIN (R star) (JOIN director (JOIN (R director) Heat)))", "Pacino", [0, 1, 4]),
        ("(JOIN (R director) (JOIN director Mann))", "Mann", [1, 1]),
        ("(AND (JOIN star Pacino) (JOIN director Mann))", "Ali", [4, 1]),
        ("(ARGMAX (JOIN director Mann) minutes)", "Heat", [0, 6]),
        ("(ARGMAX (JOIN director Mann) (JOIN gross dollars))", "Heat", [0, 8, 9]),
        ("(AND (JOIN director Mann) (gt minutes 160))", "Heat", [0, 6]),
        # Of several values, either may have been the greatest.
        ("(ARGMAX (JOIN director Mann) rank)", "Heat", [0]),
        ("(JOIN (R likes) Mann)", "Mann", [7]),
    ],
)
def test_a_way_leads_from_the_leaves_to_the_member(store, form, member, facts):
    assert way(store, parse_s_expression(form), member) == [TRIPLES[fact] for fact in facts]


def test_expand_tells_the_ways_to_its_first_members(store):
    tools = LocalGraphTools(FixedGraphs({"films": store}))
    form = "(JOIN (R star) (JOIN director Mann))"
    [result] = tools.execute(
        "films", [Action("expand", {"question": "who?", "topics": ["Mann"], "form": form})]
    )
    assert [item.id for item in result.items] == ["Pacino", "Smith"]
    assert [[tuple(fact) for fact in way] for way in result.details["ways"]] == [
        [TRIPLES[1], TRIPLES[4]],
        [TRIPLES[1], TRIPLES[3]],
    ]
    [counted] = tools.execute("films", [Action("expand", {"question": "?", "form": f"(COUNT {form})"})])
    assert "ways" not in counted.details

"""A demonstration of declining: the graph lacks what leads to the answer, and only that is imitated."""

import random

import pytest

from kbqa.cold_start.demonstrations import demonstrate
from kbqa.cold_start.imitation import example
from kbqa.cold_start.withholding import withheld
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols.form_chooser import FormChoosingProtocol
from kbqa.trajectory import Hop, Question
from tests.unit.policies_fixtures import make_codec

PROTOCOL = FormChoosingProtocol(may_decline=True)
TRIPLES = [
    ("Heat", "starring", "Al P"),
    ("Heat", "year", "1995"),
    ("Al P", "born", "1940"),
    ("Al P", "spouse", "Bea"),
]


@pytest.fixture
def tools():
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}))


@pytest.fixture
def gold(tools):
    """When was the actor of Heat born?"""
    path = (Hop("starring"), Hop("born"))
    asked = Question("q", "when was who starred in Heat born ?", ("1940",), ("Heat",), "films", path=path)
    return demonstrate(asked, PROTOCOL, tools, 6)


def said(passage):
    return "".join(segment.text for segment in passage.segments)


def test_what_leads_to_the_answer_is_missing_from_one_turn_on(gold, tools):
    assert "> starring" in said(gold.passages[0])
    found = {len(one.turns): one for seed in range(8) if (one := lacking(gold, tools, seed))}
    at_once, later = found[1], found[2]
    assert "> starring" not in said(at_once.passages[0])
    assert "> year" in said(at_once.passages[0])
    assert "> starring" in said(later.passages[0])
    assert later.turns[0] == gold.turns[0]
    assert "> born" not in said(later.passages[2])
    assert "> spouse" in said(later.passages[2])
    for one in (at_once, later):
        listed, choice = said(one.passages[-2]), said(one.passages[-1])
        assert f"{choice}<none> none of these</options>" in listed


def test_only_the_turn_that_declines_is_imitated(gold, tools):
    later = next(one for seed in range(8) if len((one := lacking(gold, tools, seed)).turns) == 2)
    learned = example(later, make_codec())
    assert sum(learned.mask) == len(make_codec().encode(later.passages[-1].segments))
    assert learned.mask[-1]
    assert sum(example(gold, make_codec()).mask) > sum(learned.mask)


def test_where_nothing_else_is_left_there_is_nothing_to_decline(tools):
    asked = Question("q", "who is Bea ?", ("Al P",), ("Bea",), "films", path=(Hop("spouse", inverse=True),))
    gold = demonstrate(asked, PROTOCOL, tools, 6)
    assert gold is not None
    assert lacking(gold, tools, 1) is None


def lacking(gold, tools, seed):
    return withheld(gold, PROTOCOL, tools, 6, random.Random(seed))

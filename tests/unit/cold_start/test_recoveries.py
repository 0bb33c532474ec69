"""A recovery begins with a turn that finds nothing, and teaches what follows alone."""

import random

import pytest

from kbqa.cold_start.demonstrations import demonstrate
from kbqa.cold_start.imitation import MadeUpNames, example, under_other_names
from kbqa.cold_start.recoveries import recovery
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import KgR1, KnowCoderA1
from kbqa.trajectory import Hop, Question
from tests.unit.policies_fixtures import make_codec

PROTOCOL = KnowCoderA1("brief")
TRIPLES = [
    ("Heat", "starring", "Al P"),
    ("Ronin", "directed_by", "John F"),
    ("Al P", "born", "1940"),
]


@pytest.fixture
def tools():
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}))


@pytest.fixture
def gold(tools):
    """Of three questions: about Heat, about Ronin, and from Heat's actor on."""
    asked = [("Heat", ["starring"], "Al P"), ("Ronin", ["directed_by"], "John F"), ("Al P", ["born"], "1940")]
    return [
        demonstrate(
            Question(topic, f"about {topic} ?", (answer,), (topic,), "films", path=tuple(map(Hop, path))),
            PROTOCOL,
            tools,
            3,
        )
        for topic, path, answer in asked
    ]


def said(passage):
    return "".join(segment.text for segment in passage.segments)


@pytest.mark.parametrize("seed", range(8))
def test_the_right_turns_follow_a_wrong_one_that_found_nothing(gold, tools, seed):
    recovered = recovery(gold[0], gold, PROTOCOL, tools, 3, random.Random(seed))
    prompt, wrong, nothing, *rest = recovered.passages
    assert said(prompt) == said(gold[0].passages[0])
    assert said(wrong) not in gold[0].turns
    assert said(nothing) == "<tool_response>[]</tool_response>"
    assert recovered.turns[1:] == gold[0].turns
    assert [passage.by_policy for passage in rest] == [True, False, True]


def test_both_wrong_relations_and_wrong_names_come(gold, tools):
    rng = random.Random(0)
    wrong = {said(recovery(gold[0], gold, PROTOCOL, tools, 3, rng).passages[1]) for _ in range(40)}
    assert any("e:Heat>" in turn and "starring" not in turn for turn in wrong)
    assert any("e:Heat>" not in turn and "starring" in turn for turn in wrong)


def test_the_wrong_turn_is_read_and_not_imitated(gold, tools):
    codec = make_codec()
    recovered = recovery(gold[0], gold, PROTOCOL, tools, 3, random.Random(0))
    other = under_other_names(recovered, MadeUpNames(("ab",)), random.Random(0))
    for one in (recovered, other):
        made = example(one, codec, 40)
        at = 0
        for passage in one.passages:
            count = len(codec.encode(passage.segments))
            assert set(made.mask[at : at + count]) == {passage.by_policy and passage.imitated}
            at += count
        assert not one.passages[1].imitated
        assert one.passages[3].imitated


def test_there_is_none_where_turns_do_not_suffice(gold, tools):
    assert recovery(gold[0], gold, PROTOCOL, tools, 2, random.Random(0)) is None


def test_there_is_none_where_every_turn_finds_something(tools):
    protocol = KgR1("brief")
    question = Question("q", "who ?", ("Al P",), (), "films", sparql="SELECT ?x WHERE { ?x ?y ?z }")
    gold = demonstrate(
        Question("q", "about Heat ?", ("Al P",), ("Heat",), "films", path=(Hop("starring"),)),
        protocol,
        tools,
        3,
    )
    anyone = type(gold)(question, gold.passages, gold.names)
    assert recovery(anyone, [gold], protocol, tools, 3, random.Random(0)) is None

"""Which corrections can be taught, and why the others cannot."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from kbqa.corrections import Correction, examine
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import Question
from tests.iri_graphs import WIKIDATA

TRIPLES = [
    ("Heat", "directed_by", "Mann"),
    ("Heat", "starring", "Al"),
    ("Heat", "starring", "Val"),
    ("Val", "born", "1959"),
    ("Ronin", "written_by", "Mamet"),
]
BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def tools():
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}), deadline_s=300)


def said(text, *answers, topics=("Heat",), teacher="ann", after_s=0, kg="films"):
    time = BEGAN + timedelta(seconds=after_s)
    return Correction(f"{teacher}/{after_s}/{text}", text, answers, topics, kg, teacher, time)


def test_a_correction_is_accepted_if_the_graph_leads_to_exactly_its_answers(tools):
    right = [
        said("Who made Heat?", "Mann"),
        said("Who is in Heat?", "Val", "Al"),
        said("When was somebody of Heat born?", "1959"),
    ]
    assert examine(right, (), tools) == examine(right, (), tools)
    assert examine(right, (), tools).accepted == tuple(right)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (said("Who is in Heat?", "Al"), "nothing leads"),  # one of two
        (said("Who wrote Heat?", "Mamet"), 'nothing leads from "Heat" to exactly these answers'),
        (said("Who made Heat?", "Nobody"), 'the graph has no entity "Nobody"'),
        (said("Who made Hear?", "Mann", topics=("Hear",)), 'the graph has no entity "Hear"'),
        (said("Who made it?", "Mann", topics=()), "begins at 0 entities"),
        (said("Who made both?", "Mann", topics=("Heat", "Ronin")), "begins at 2 entities"),
    ],
)
def test_a_correction_that_the_graph_cannot_support_is_set_aside(tools, wrong, says):
    found = examine([said("Who made Heat?", "Mann", teacher="bob"), wrong], (), tools)
    if wrong.asked == said("Who made Heat?", "Mann").asked:  # then they also contradict each other
        says = "contradict each other (by ann, bob)"
    assert [(out.correction, says in out.reason) for out in found.set_aside if out.correction == wrong] == [
        (wrong, True)
    ]


def test_of_a_teacher_most_of_whose_corrections_are_wrong_nothing_is_accepted(tools):
    right = [said("Who made Heat?", "Mann", teacher=teacher) for teacher in ("ann", "eve")]
    wrong = [said(f"Who wrote Heat {n}?", "Mamet", teacher="eve", after_s=n) for n in (1, 2, 3)]
    found = examine([*right, *wrong], (), tools)
    assert found.accepted == (right[0],)
    assert [out.correction for out in found.set_aside] == [right[1], *wrong]
    assert found.set_aside[0].reason == "3 of these 4 corrections are wrong, so the others are not believed"
    assert examine([*right, *wrong[:2]], (), tools).accepted == tuple(right)  # two may be slips
    lies = [said("Who made Heat?", "Al", teacher="eve"), *wrong]  # they take nobody else along
    assert examine([said("Who is in Heat?", "Al", "Val"), *lies], (), tools).accepted[0].teacher == "ann"


def test_corrections_that_contradict_each_other_are_all_set_aside(tools):
    one, other = said("Who made Heat?", "Mann"), said("who made  heat", "Al", teacher="bob", after_s=1)
    alike = said("Who made Heat", "Mann", teacher="cy", after_s=2)
    found = examine([one, other, alike], (), tools)
    assert not found.accepted
    assert {out.reason for out in found.set_aside} == {
        "corrections of this question contradict each other (by ann, bob)"
    }


def test_a_correction_that_contradicts_earlier_training_is_set_aside(tools):
    earlier = [
        Question("q1", "who made heat ?", ("Mann",), ("Heat",), "films", variants=(("Val", "Al"),)),
        Question("q2", "who made heat ?", ("Al",), ("Heat",), "elsewhere"),
    ]
    right = [said("Who made Heat?", "Mann"), said("Who made Heat?", "Al", "Val", teacher="bob")]
    for one in right:  # both are among the gold answers
        assert examine([one], earlier, tools).accepted == (one,)
    [out] = examine([said("Who made Heat?", "Val", teacher="eve")], earlier, tools).set_aside
    assert out.reason == "the question q1, whose answers are known, has others"


def test_an_id_and_a_label_of_the_same_entity_contradict_neither_each_other_nor_earlier_questions(tmp_path):
    (tmp_path / "art.ttl").write_text(WIKIDATA)
    both = [
        said("Who made it?", "Q762", topics=("Q12418",), kg="art"),
        said("Who made it?", "Leonardo da Vinci", topics=("Q12418",), teacher="bob", kg="art"),
    ]
    earlier = [Question("q1", "who made it ?", ("Leonardo da Vinci",), ("Q12418",), "art")]
    with closing(GraphCatalog(tmp_path)) as graphs:
        graphs.load("art", tmp_path / "art.ttl")
        found = examine(both, earlier, LocalGraphTools(graphs, deadline_s=300))
    assert found.accepted == tuple(both)

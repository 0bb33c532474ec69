"""Paths mined from answers: which are found, which one a question means, and that no gold program is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbqa.cold_start.demonstrations import demonstrate, play_program
from kbqa.cold_start.mining import Bounds, blind, bounds_for, mine
from kbqa.cold_start.wording import likeliest
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import InteractiveParsing, KbqaR1, KgR1, KnowCoderA1, SparqlRefinement
from kbqa.trajectory import Hop, Question

TRIPLES = [
    ("Heat", "directed_by", "Mann"),
    ("Ali", "directed_by", "Mann"),
    ("Heat", "starring", "Al"),
    ("Heat", "starring", "Val"),
    ("Ronin", "starring", "Val"),
    ("Al", "born", "1940"),
    ("Val", "born", "1959"),
    ("Mann", "born", "1943"),
    ("Ronin", "written_by", "Mamet"),
    ("Ronin", "produced_by", "Mamet"),
    *((f"extra {number}", "seen_in", "Heat") for number in range(5)),
]

DIRECTED, STARRING, BORN = Hop("directed_by"), Hop("starring"), Hop("born")


@pytest.fixture
def tools():
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}), deadline_s=300)


def ask(topic: str, *answers: str, text: str = "what of {} ?") -> Question:
    return Question(f"{topic}/{answers}", text.format(topic), answers, (topic,), "films")


def mined(tools, *questions: Question, **bounds: int):
    return [question.path for question in mine(questions, tools, Bounds(**bounds), seed=1)]


@pytest.mark.parametrize(
    ("topic", "answers", "path"),
    [
        ("Heat", ("Mann",), (DIRECTED,)),
        ("Mann", ("Heat", "Ali"), (Hop("directed_by", inverse=True),)),
        ("Heat", ("1940", "1959"), (STARRING, BORN)),
        ("Ali", ("Al", "Val"), (DIRECTED, Hop("directed_by", inverse=True), STARRING)),
        # The way back to the topic is no answer, as in MetaQA's films of the same director.
        ("Heat", ("Ali",), (DIRECTED, Hop("directed_by", inverse=True))),
    ],
)
def test_a_path_ends_with_just_the_answers(tools, topic, answers, path):
    assert mined(tools, ask(topic, *answers)) == [path]


@pytest.mark.parametrize(
    "question",
    [
        ask("Heat", "1940"),  # one of two that no path tells apart
        ask("Heat", "1940", "1959", "1943"),
        ask("Nobody", "Mann"),
        ask("Heat"),
        replace(ask("Heat", "Mann"), topic_entities=()),
        replace(ask("Heat", "Mann"), topic_entities=("Heat", "Ali")),
    ],
)
def test_where_no_path_ends_so_there_is_none(tools, question):
    assert mined(tools, question) == [()]


def test_paths_are_bounded(tools):
    born, films = ask("Ali", "1940", "1959"), ask("Mann", "Heat", "Ali")
    assert mined(tools, born, hops=4) != [()]
    assert mined(tools, born, hops=3) == [()]
    assert mined(tools, films, entities=1) != [()]
    assert mined(tools, ask("Heat", "1940", "1959"), entities=1) == [()]
    assert mined(tools, films, width=2) != [()]
    assert mined(tools, films, width=1) == [()]


def test_through_a_hub_no_path_is_followed(tools):
    many = ask("Heat", *(f"extra {number}" for number in range(5)))
    assert mined(tools, many, width=5) == [(Hop("seen_in", inverse=True),)]
    assert mined(tools, many, width=4) == [()]


def test_a_path_of_more_look_ups_than_there_are_turns_is_none(tools):
    born = ask("Heat", "1940", "1959")  # Heat, Al, Val
    assert mined(tools, born, look_ups=3) == [(STARRING, BORN)]
    assert mined(tools, born, look_ups=2) == [()]
    assert bounds_for(KgR1(), 4).look_ups == 3
    assert bounds_for(KnowCoderA1(), 4).look_ups is None


def test_of_paths_with_the_same_ends_the_shortest_is_taken_unless_words_say_otherwise(tools):
    # Mann made Heat, so that "the director of" and "the director of another film of the director of" agree.
    assert mined(tools, ask("Heat", "Mann"), hops=3) == [(DIRECTED,)]


def test_words_tell_which_of_several_paths_is_meant():
    wrote, produced = (Hop("written_by"),), (Hop("produced_by"),)
    texts = ["who wrote ?", "who produced ?", "who wrote ?", "who produced ?"]
    paths = [[wrote], [produced], [wrote, produced], [wrote, produced]]
    assert all(likeliest(texts, paths, seed) == [wrote, produced, wrote, produced] for seed in range(5))


def test_the_first_step_of_em_is_as_by_hand():
    """One word, two relations: every path gives half of it to its hop and half to none."""
    a, b = (Hop("a"),), (Hop("b"),)
    # "x" is counted once for a (twice half), never for b, so that where both are possible a is meant.
    assert likeliest(["x", "x", "x", "y"], [[a], [a], [b, a], [b]], 0)[2] == a


def test_ties_are_broken_by_the_seed():
    wrote, produced = (Hop("written_by"),), (Hop("produced_by"),)
    chosen = {likeliest(["who made ?"], [[wrote, produced]], seed)[0] for seed in range(20)}
    assert chosen == {wrote, produced}
    assert likeliest(["who made ?"], [[wrote, produced]], 3) == likeliest(
        ["who made ?"], [[wrote, produced]], 3
    )


def test_mining_reads_no_gold_program_and_leaves_none(tools):
    questions = [ask("Heat", "Mann"), ask("Heat", "1940", "1959"), ask("Heat", "1940"), ask("Ronin", "Mamet")]
    told = [
        replace(question, path=(Hop("produced_by"),), form="(JOIN x y)", sparql="SELECT ?x WHERE { }")
        for question in questions
    ]
    assert [blind(question) for question in told] == questions
    found = mine(told, tools, Bounds(), seed=1)
    assert found == mine(questions, tools, Bounds(), seed=1)
    assert [(question.form, question.sparql) for question in found] == [("", "")] * len(found)
    assert found[2].path == ()


@pytest.mark.parametrize(
    "protocol",
    [
        KgR1("brief"),
        KgR1("brief", entities="references"),
        KbqaR1("brief"),
        KnowCoderA1("brief"),
        InteractiveParsing("brief"),
        SparqlRefinement("brief"),
    ],
    ids=lambda protocol: f"{protocol.name}-{getattr(protocol, 'entities', '')}",
)
def test_what_plays_gold_programs_plays_mined_paths_in_every_dialect(tools, protocol):
    [question] = mine([ask("Heat", "1943")], tools, bounds_for(protocol, 8), seed=1)
    assert question.path == (DIRECTED, BORN)
    assert demonstrate(question, protocol, tools, max_turns=8) is not None


def test_a_lesson_by_reference_names_no_entity(tools):
    protocol = KgR1("brief", entities="references")
    [question] = mine(
        [ask("Heat", "1940", "1959", text="when were the actors of {} born ?")], tools, Bounds(), 1
    )
    played = play_program(question, protocol, tools, max_turns=5)
    assert played is not None
    assert [turn.text for turn in played.turns] == [
        '<think>starring then born</think><kg-query>get_tail_entities("e1", "starring")</kg-query>',
        '<think>born</think><kg-query>get_tail_entities("e2", "born")</kg-query>',
        '<think>born</think><kg-query>get_tail_entities("e3", "born")</kg-query>',
        "<think></think><answer>e4, e5</answer>",
    ]
    assert [turn.observation for turn in played.turns[:3]] == [
        "<information>e2, e3</information>",
        "<information>e4</information>",
        "<information>e5</information>",
    ]
    entities = [action.arguments["entity"] for turn in played.turns for action in turn.actions]
    assert entities == ["Heat", "Al", "Val"]
    assert [answer.text for answer in played.answers or ()] == ["1940", "1959"]


def test_a_lesson_by_reference_leaves_out_the_topic_that_its_path_comes_back_to(tools):
    protocol = KgR1("brief", entities="references")
    [question] = mine([ask("Heat", "Ali")], tools, Bounds(), 1)
    played = play_program(question, protocol, tools, max_turns=5)
    assert played is not None
    assert played.turns[-1].text == "<think></think><answer>e3</answer>"


def test_a_lesson_that_needs_more_references_than_there_are_ends():
    triples = [("Heat", "starring", f"actor {number}") for number in range(24)]
    tools = LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(triples)}), deadline_s=300)
    question = replace(ask("Heat", *(tail for _, _, tail in triples)), path=(STARRING,))
    assert play_program(question, KgR1("brief"), tools, max_turns=5, max_items=30) is not None
    by_reference = KgR1("brief", entities="references")
    assert play_program(question, by_reference, tools, max_turns=5, max_items=30) is None

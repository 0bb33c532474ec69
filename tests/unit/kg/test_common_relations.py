"""Relations that graphs commonly have: which of them a graph lacks, and which a question asks for."""

from __future__ import annotations

import pytest

from kbqa.kg.actions import Item
from kbqa.kg.common_relations import asked_for, common_relations, lacking, saying

FILMS = (["directed_by"], ["starring"], ["releaseYear"], ["P136", "genre"])


def names(relations):
    return {relation.name for relation in relations}


def test_a_graph_lacks_what_no_name_of_its_relations_says():
    absent = names(lacking(FILMS))
    assert {"composer", "producer", "spouse"} <= absent
    assert not {"director", "cast", "release date", "genre"} & absent


@pytest.mark.parametrize("name", ["written by", "scriptWriter", "film.film.author", "Screenplay"])
def test_a_name_says_a_relation_by_any_of_its_words(name):
    assert "writer" not in names(lacking([*FILMS, [name]]))


def test_a_word_is_no_part_of_another_one():
    assert "writer" in names(lacking([*FILMS, ["underwriter"]]))


@pytest.mark.parametrize(
    "relations",
    [
        pytest.param([], id="no relations"),
        pytest.param([*FILMS, ["P57", "P57"]], id="one without words"),
        pytest.param([["regie"], ["darsteller"], ["erscheinungsjahr"]], id="another language"),
    ],
)
def test_where_names_do_not_tell_nothing_is_said_to_be_lacking(relations):
    assert lacking(relations) == []


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("Who composed the music of Heat?", ["composer"]),
        ("who is Heat's producer", ["producer"]),
        ("How many employees does Acme have?", ["employees"]),
        ("who directed Heat?", []),  # the graph has that
        ("who is in it?", []),
    ],
)
def test_a_question_asks_for_a_relation_by_one_of_its_words(question, asked):
    assert [one.name for one in asked_for(question, ["Heat"], lacking(FILMS))] == asked


def test_the_words_of_a_topic_ask_for_nothing():
    absent = lacking(FILMS)
    assert asked_for("when was The Producers released?", ["The Producers"], absent) == []
    [asked] = asked_for("who is the producer of The Producers?", ["The Producers"], absent)
    assert asked.name == "producer"


def test_relations_of_a_graph_say_common_ones_by_their_names():
    director, script, opaque = (
        Item("directed_by", "directed_by"),
        Item("P58", "screenplay"),
        Item("P57", "P57"),
    )
    graph = {director: ("directed_by",), script: ("P58", "screenplay"), opaque: ("P57",)}
    said = {common.name: relations for common, relations in saying(graph).items()}
    assert said == {"director": [director], "writer": [script]}


def test_all_that_are_listed_have_further_words_and_none_is_listed_twice():
    listed = common_relations()
    assert len(listed) >= 140
    assert len(names(listed)) == len(listed)
    for relation in listed:
        assert len(relation.said) == len(set(relation.said)) > 1, relation.name
        assert all(one == f" {one.strip().lower()} " for one in relation.said)

"""Topic entities of questions."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kg.actions import Item
from kbqa.kg.linking.linker import EntityLinker

FILMS = [
    *(
        "Kismet",
        "Tom Hanks",
        "Meg Ryan",
        "The Dark Knight",
        "Dark",
        "It",
        "Her",
        "Up",
        "M",
        "1999",
        "12",
        "director",
    ),
    *(
        "What's Up, Doc?",
        "Jurassic Park (1993)",
        "Hell's Kitchen",
        "In Hell",
        "kitchen",
        "Amélie",
        "The Descent",
    ),
    *("ludwig_ii_of_bavaria", "frederica_of_mecklenburg-strelitz", "female", "101 Dalmatians", "!", "US"),
]


@pytest.fixture(scope="module")
def linked():
    linker = EntityLinker((name, Item(name, name)) for name in FILMS)

    def link(question):
        mentions = linker.link(question)
        assert [m.start for m in mentions] == sorted(m.start for m in mentions)
        return [mention.id for mention in mentions]

    return link


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("who directed Kismet", ["Kismet"]),
        ("who directed [Kismet]?", ["Kismet"]),
        ("who directed kismet?", ["Kismet"]),
        ("films with Tom Hanks and Meg Ryan", ["Tom Hanks", "Meg Ryan"]),
        ("FILMS WITH TOM HANKS AND MEG RYAN", ["Tom Hanks", "Meg Ryan"]),
        ("what is the dark knight about", ["The Dark Knight"]),
        ("who plays in The Dark Knight", ["The Dark Knight"]),
        ("who made What's Up, Doc?", ["What's Up, Doc?"]),
        ("the year of Jurassic Park (1993)", ["Jurassic Park (1993)"]),
        ("who starred in Hell's Kitchen", ["Hell's Kitchen"]),
        ("The Descent, when was it released", ["The Descent"]),
        ("what is the gender of ludwig_ii_of_bavaria 's spouse ?", ["ludwig_ii_of_bavaria"]),
        ("who was Ludwig II of Bavaria", ["ludwig_ii_of_bavaria"]),
        ("the couple of frederica_of_mecklenburg-strelitz ?", ["frederica_of_mecklenburg-strelitz"]),
        ("who   made\tTom\nHanks famous", ["Tom Hanks"]),
        ("who made Ame\u0301lie", ["Amélie"]),
        ("", []),
        ("?!", []),
        ("who directed nothing at all", []),
    ],
)
def test_the_longest_name_in_the_question_is_its_topic(linked, question, topics):
    assert linked(question) == topics


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("is it true that her us visit is up", []),
        ("who directed It in Rome", ["It"]),
        ("who directed [it]", ["It"]),
        ('who directed "Up"', ["Up"]),
        ("It is the best film by whom", []),
        ("who directed M?", ["M"]),
        ("who's the m in it", []),
        ("films of 1999", ["1999"]),
        ("films of 1999 with Tom Hanks", ["Tom Hanks"]),
        ("the director of Kismet", ["Kismet"]),
        ("what does a director do", ["director"]),
        ("the films of 12", ["12"]),
        ("who owns 101 dalmatians", ["101 Dalmatians"]),
        ("wow!", []),
    ],
)
def test_everyday_words_numbers_and_letters_are_names_only_where_marked(linked, question, topics):
    assert linked(question) == topics


def test_names_are_found_between_word_boundaries_only(linked):
    assert linked("a kismetic darkness at the hanksians") == []
    assert linked("Kismet's end") == ["Kismet"]


def test_a_mention_says_where_it_is():
    [mention] = EntityLinker([("Kismet", Item("Q1", "Kismet"))]).link("😀 é who made KISMET?")
    assert (mention.id, mention.label) == ("Q1", "Kismet")
    assert "😀 é who made KISMET?"[mention.start : mention.end] == "KISMET"


def test_entities_of_one_name_are_all_mentioned_and_the_exact_case_is_preferred():
    names = [("Paris", Item("Q1", "Paris")), ("Paris", Item("Q2", "Paris")), ("PARIS", Item("Q3", "PARIS"))]
    linker = EntityLinker(names)
    assert [m.id for m in linker.link("where is Paris")] == ["Q1", "Q2"]
    assert [m.id for m in linker.link("where is PARIS")] == ["Q3"]
    assert [m.id for m in linker.link("where is paris")] == ["Q1", "Q2", "Q3"]


def test_every_label_of_an_entity_is_its_name():
    film = Item("Q1", "Amélie")
    linker = EntityLinker([("Amélie", film), ("Le Fabuleux Destin d'Amélie Poulain", film)])
    assert [m.label for m in linker.link("who made le fabuleux destin d'amélie poulain")] == ["Amélie"]


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("who directed Kismett", ["Kismet"]),
        ("who directed kismett", ["Kismet"]),
        ("WHO DIRECTED KISMETT", ["Kismet"]),
        ("Kismat was directed by whom", ["Kismet"]),
        ("the director of Kismett", ["Kismet"]),
        ("films with Tom Hankss and Meg Ryan", ["Tom Hanks", "Meg Ryan"]),
        ("films with Tom Hnaks and Mge Ryan", ["Tom Hanks", "Meg Ryan"]),
        ("who plays in the dark kinght", ["The Dark Knight"]),
        ("who made Amelie", ["Amélie"]),
        ("who owns 101 Dalmations", ["101 Dalmatians"]),
        ("films with Tom Hanks about kismett", ["Tom Hanks"]),
        ("who directed Kissing", []),
        ("who directed the Drak", []),
        ("a dascent from here", []),
        ("the dascent, when was it released", ["The Descent"]),
    ],
)
def test_a_misspelt_name_is_found_where_it_may_stand(linked, question, topics):
    assert linked(question) == topics


def test_a_misspelt_name_scores_less_than_one():
    linker = EntityLinker([("Kismet", Item("Q1", "Kismet")), ("Philadelphia", Item("Q2", "Philadelphia"))])
    [exact] = linker.link("who directed Kismet")
    [near] = linker.link("who directed Kismett")
    assert (exact.score, near.score) == (1.0, round(1 - 1 / 7, 4))
    assert "who directed Kismett"[near.start : near.end] == "Kismett"


def test_all_whom_a_misspelt_name_may_mean_are_candidates_best_first():
    names = ["Anna Maria Smith", "Anna Marie Smith", "Anna Mario Smitt", "Bob"]
    linker = EntityLinker((name, Item(name, name)) for name in names)
    mentions = linker.link("who is Anna Mari Smith?")
    assert [mention.id for mention in mentions] == ["Anna Maria Smith", "Anna Marie Smith"]
    assert {(mention.start, mention.end) for mention in mentions} == {(7, 22)}
    assert linker.link("who is Anna Marie Smith?")[0].score == 1.0


def test_one_misspelt_name_of_many_entities_has_five_candidates_at_most():
    linker = EntityLinker(("Springfield", Item(f"Q{n}", "Springfield")) for n in range(9))
    assert len(linker.link("where is Springfeild")) == 5
    assert len(linker.link("where is Springfield")) == 9


LONG = [name for name in FILMS if len(name) > 8 and re.search(r"[^\W_]{5}", name)]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(LONG), st.data())
def test_one_typing_error_in_a_long_name_does_not_hide_it(name, data):
    places = [at for at in range(1, len(name)) if name[at - 1 : at + 1].isalpha()]
    at = data.draw(st.sampled_from(places))
    letter = data.draw(st.sampled_from("aeimxz"))
    wrong = data.draw(st.sampled_from([name[:at] + name[at + 1 :], name[:at] + letter + name[at:]]))
    linker = EntityLinker((other, Item(other, other)) for other in LONG)
    assert [mention.id for mention in linker.link(f"tell me about {wrong}")] == [name]


def data(name):
    root = os.environ.get("KBQA_DATA")
    path = Path(root or "") / name
    if not root or not path.exists():
        pytest.skip(f"set KBQA_DATA to a directory that holds {name}")
    return path


def names_of(path, separator):
    rows = (line.split(separator) for line in path.read_text(encoding="utf8").splitlines())
    return {name for row in rows for name in (row[0], row[2])}


def test_metaqa_topics_are_found_without_their_brackets():
    linker = EntityLinker((n, Item(n, n)) for n in names_of(data("metaqa/kb.txt"), "|"))
    questions = [
        line.split("\t")[0] for line in data("metaqa/2hop_dev.txt").read_text(encoding="utf8").splitlines()
    ]
    right = 0
    for question in questions:
        topic = re.search(r"\[(.*)\]", question)[1]
        right += [m.id for m in linker.link(question.replace("[", "").replace("]", ""))] == [topic]
    assert right / len(questions) > 0.995


def test_pathquestion_topics_are_found():
    linker = EntityLinker((n, Item(n, n)) for n in names_of(data("pathquestion/2H-kb.txt"), "\t"))
    rows = [
        line.split("\t") for line in data("pathquestion/PQ-2H.txt").read_text(encoding="utf8").splitlines()
    ]
    assert rows
    assert all([m.id for m in linker.link(row[0])] == [row[2].split("#")[0]] for row in rows)

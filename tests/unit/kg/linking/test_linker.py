"""Topic entities of questions."""

from __future__ import annotations

import gc
import os
import re
import time
import weakref
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kg.actions import Item
from kbqa.kg.linking.fuzzy_names import FuzzyNames
from kbqa.kg.linking.linker import Difference, EntityLinker
from kbqa.kg.linking.tokens import keys_of, tokens_of

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


def linker_of(*names, **kinds):
    return EntityLinker([(name, Item(name, name)) for name in names], **kinds)


def found(linker, question):
    return [(m.id, question[m.start : m.end]) for m in linker.link(question)]


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("How many Sensor Switches are there?", ["Sensor", "Switch"]),
        ("which switches are there", ["Switch"]),
        ("What are Inductive Capacities?", ["Inductive Capacity"]),
        ("Who sells a Service Contract?", ["Service Contracts"]),
        ("Which Sensored thing?", []),
    ],
)
def test_a_name_may_be_in_the_other_number(question, topics):
    linker = linker_of("Sensor", "Switch", "Inductive Capacity", "Service Contracts")
    mentions = linker.link(question)
    assert [mention.id for mention in mentions] == topics


def test_a_name_in_the_other_number_is_not_exact():
    [exact] = linker_of("Switch").link("what is a Switch?")
    [plural] = linker_of("Switch").link("what are Switches?")
    assert exact.score == 1 > plural.score > 0.5


def test_the_plural_of_a_shared_name_means_none_of_its_entities():
    shared = [("Switch", Item(f"Q{n}", "Switch")) for n in range(5)]
    assert EntityLinker(shared[:4]).link("what are Switches?")
    assert not EntityLinker(shared).link("what are Switches?")
    parts = EntityLinker([*shared, ("Sensor", Item("S", "Sensor")), ("Sensor Switch", Item("X", "X"))])
    assert {m.id for m in parts.link("what are Sensor Switches?")} == {"X"}


PEOPLE = (
    "Karen Brant",
    "Sylvester Brant",
    "Heinrich Hoch",
    "Brant Hoch Meyer",
    "Angela Smith",
    "Jo Smith-Jones",
)


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("In which department is Ms. Meyer?", [("Brant Hoch Meyer", "Meyer")]),
        ("In which department is Dr Meyer?", [("Brant Hoch Meyer", "Meyer")]),
        ("Who manages Heinrich?", [("Heinrich Hoch", "Heinrich")]),
        ("Who manages Heinrich Hoch?", [("Heinrich Hoch", "Heinrich Hoch")]),
        ("Who manages Karen Brannt?", [("Karen Brant", "Karen Brannt")]),
        ("Who manages Jo Jones?", [("Jo Smith-Jones", "Jo Jones")]),
        ("Who manages Angela Merkel?", []),
        ("Meyer is who?", []),
        ("who manages meyer", []),
    ],
)
def test_a_part_of_a_name_is_found_where_it_is_written_as_a_name(question, topics):
    assert found(linker_of(*PEOPLE), question) == topics


def test_all_whom_a_part_of_a_name_may_mean_are_candidates_if_they_are_few():
    names = [f"{first} Brant" for first in ("Al", "Bo", "Cy", "Di")]
    mentions = linker_of(*names).link("Where is Ms. Brant?")
    assert [m.id for m in mentions] == names
    assert all(0 < m.score < 1 for m in mentions)
    assert not linker_of(*names, "Ed Brant").link("Where is Ms. Brant?")


def test_of_many_names_those_that_end_with_the_part_are_meant():
    names = [f"Brant {last}" for last in ("Adams", "Baker", "Clark", "Davis")]
    assert [m.id for m in linker_of(*names, "Ed Brant").link("Where is Mr. Brant?")] == ["Ed Brant"]


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("What fits the U990 LCD Inductor?", [("U990-523 - LCD Inductor", "U990 LCD Inductor")]),
        ("What fits the LCD Inductor?", [("LCD", "LCD"), ("Inductor", "Inductor")]),
        ("What fits an LCD from Toulouse?", [("LCD", "LCD")]),
    ],
)
def test_a_part_of_a_long_name_wins_over_shorter_names_in_it(question, topics):
    assert found(linker_of("LCD", "Inductor", "U990-523 - LCD Inductor"), question) == topics


def test_what_describes_entities_is_no_topic():
    linker = linker_of("Department", "price", "Marketing", "Departmant Shop", schema={"Department", "price"})
    assert found(linker, "Which Department is Marketing?") == [("Marketing", "Marketing")]
    assert found(linker, "Which Departments are there, and at which price?") == []
    assert found(linker, "which department has a price") == []
    both = EntityLinker(
        [("Service", Item("class", "Service")), ("Service", Item("film", "Service"))], schema={"class"}
    )
    assert found(both, "Who directed Service?") == [("film", "Service")]


def test_a_class_is_a_topic_where_it_is_written_as_a_name_or_nothing_else_is_named():
    linker = linker_of("Piano", "violin", classes={"Piano"})
    assert found(linker, "Who invented the Piano?") == [("Piano", "Piano")]
    assert found(linker, "who invented the piano?") == [("Piano", "piano")]
    assert found(linker, "is a piano a violin?") == [("violin", "violin")]
    shared = [("Piano", Item("class", "Piano")), ("Piano", Item("film", "Piano"))]
    assert found(EntityLinker(shared, classes={"class"}), "Who directed Piano?") == [("film", "Piano")]


def value(text):
    return text, Item(f'"{text}"', text)


@pytest.mark.parametrize(
    ("question", "topics"),
    [
        ("Which suppliers are in Toulouse?", [('"Toulouse"', "Toulouse")]),
        ("which suppliers are in toulouse?", [('"Toulouse"', "toulouse")]),
        ("Which suppliers are in New Delhi?", [('"New Delhi"', "New Delhi")]),
        ("Which suppliers are in France?", [("Q142", "France")]),
        ('Which orders are "open"?', [('"open"', "open")]),
        ("which orders are open?", []),
        ("which foams have a high density?", []),
        ('which foams are "high density"?', [('"high density"', "high density")]),
        ("which is order ab12?", [('"ab12"', "ab12")]),
        ("Which orders have 17?", []),
        ("Who sells Acme Toulouse?", [("Acme Toulouse", "Acme Toulouse")]),
    ],
)
def test_a_value_is_a_topic_where_it_is_written_as_a_name(question, topics):
    names = [("France", Item("Q142", "France")), ("Acme Toulouse", Item("Acme Toulouse", "Acme Toulouse"))]
    values = [
        value(text) for text in ("Toulouse", "New Delhi", "France", "open", "17", "high density", "ab12")
    ]
    assert found(EntityLinker(names, values=values), question) == topics


def test_parts_of_names_among_many_are_found_quickly():
    first = [f"{a}{b}" for a in ("Al", "Be", "Cy", "Do", "El") for b in ("an", "bert", "dric", "ra")]
    names = [f"{name} Family{n}" for n in range(5000) for name in first]
    linker = linker_of(*names, "Karen Brant")
    linker.link("Where is Ms. Brant?")  # builds the index
    began = time.process_time()
    for _ in range(20):
        assert [m.id for m in linker.link("Where is Ms. Brant?")] == ["Karen Brant"]
    assert (time.process_time() - began) / 20 < 0.05


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("t", ["The Dark Knight", "The Descent", "Tom Hanks"]),
        ("the D", ["The Dark Knight", "The Descent"]),
        ("Tom Hanks", ["Tom Hanks"]),
        ("ryan", ["Meg Ryan"]),
        ("the kni", ["The Dark Knight"]),
        ("dark", ["Dark", "The Dark Knight"]),
        ("ame", ["Amélie"]),
        ("it", ["It"]),
        ("Jurassic Park (19", ["Jurassic Park (1993)"]),
        ("knight the", []),
        ("?", ["What's Up, Doc?"]),
        ("_", []),
        ("", []),
    ],
)
def test_a_name_is_found_by_its_beginning_or_by_that_of_a_later_word(text, names):
    linker = EntityLinker((name, Item(name, name)) for name in FILMS)
    assert [item.label for item in linker.complete(text, 3)] == names


def test_a_name_of_the_schema_completes_nothing_and_each_entity_comes_once():
    names = [
        ("Film", Item("film", "Film")),
        ("Filmore", Item("f", "Filmore")),
        ("Filmore West", Item("f", "Filmore")),
    ]
    linker = EntityLinker(names, schema={"film"})
    assert linker.complete("fil", 9) == [Item("f", "Filmore")]
    assert linker.complete("filmore w", 9) == [Item("f", "Filmore West")]


WORDS = st.text("ab ", min_size=1, max_size=9).map(str.split).filter(bool)


@given(
    st.lists(WORDS.map(" ".join), max_size=12, unique=True),
    st.lists(WORDS.map(" ".join), max_size=4, unique=True),
    WORDS,
)
@settings(deadline=None)
def test_names_that_begin_with_a_text_are_found_as_by_looking_at_each(names, others, words):
    before = FuzzyNames.of(names)
    now = [name for name in dict.fromkeys([*names, *others]) if name not in names[:2]]
    changed = before.changed(names[:2], [name for name in others if name not in names])
    text = " ".join(words)
    for fuzzy, those in ((before, names), (changed, now)):
        found = list(fuzzy.beginning(words))
        first = sorted({name for name in those if name.startswith(text)})
        assert found[: len(first)] == first
        assert len(found) == len(set(found))
        for name in found[len(first) :]:
            assert name in those
            assert any(word.startswith(words[-1]) for word in name.split(" "))


@given(st.one_of(st.text(), st.text("Ab_-' 1é\u0301ßİ")))
def test_keys_are_those_of_the_tokens(text):
    assert keys_of(text) == [token.key for token in tokens_of(text)]


def test_a_linker_is_freed_as_soon_as_nobody_has_it():
    """A linker keeps the files of its graph open, so it must not wait for the garbage collector."""
    linker = EntityLinker([("Ann", Item("a", "Ann"))])
    nothing = Difference([], [])
    changed = linker.changed(Difference([], [("Bea", Item("b", "Bea"))]), nothing, classes=(), schema=())
    assert [mention.id for mention in changed.link("who is Bea?")] == ["b"]
    gone = [weakref.ref(one) for one in (linker, changed)]
    gc.disable()
    try:
        del linker, changed
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()

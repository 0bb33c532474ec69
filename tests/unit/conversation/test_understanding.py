"""What follow-up questions mean, over a small graph of people and films."""

from __future__ import annotations

import pytest

from kbqa.conversation import Acquaintances, Exchange, Name, Thing, Understood, understand
from kbqa.errors import ConversationError
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools

TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
TRIPLES = [
    *(
        (name, TYPE, kind)
        for kind, names in {
            "film": ("Heat", "Collateral", "Her"),
            "person": ("Michael Mann", "Ann Biderman", "Al Pacino", "Sara Veld", "Ali Veld", "Fatima Veld"),
            "city": ("Chicago", "Delft"),
            "genre": ("crime",),
        }.items()
        for name in names
    ),
    ("Heat", "directed_by", "Michael Mann"),
    ("Heat", "producer", "Ann Biderman"),
    ("Heat", "genre", "crime"),
    ("Heat", "starred", "Al Pacino"),
    ("Collateral", "directed_by", "Michael Mann"),
    ("Her", "directed_by", "Sara Veld"),
    ("Michael Mann", "place_of_birth", "Chicago"),
    ("Michael Mann", "spouse", "Ann Biderman"),
    ("Sara Veld", "place_of_birth", "Delft"),
    ("Sara Veld", "brother", "Ali Veld"),
    ("Sara Veld", "mother", "Fatima Veld"),
    ("Ali Veld", "place_of_birth", "Delft"),
    ("Fatima Veld", "place_of_birth", "Chicago"),
]


@pytest.fixture(scope="module")
def graph() -> Acquaintances:
    return Acquaintances(LocalGraphTools(FixedGraphs({"g": OxigraphStore.from_triples(TRIPLES)})), "g")


def exchange(question: str, *answers: str) -> Exchange:
    """An exchange in which every known name of the question is found."""
    known = {end for triple in TRIPLES for end in (triple[0], triple[2]) if end[:1].isupper()}
    names = [
        Name(id=name, label=name, start=question.index(name), end=question.index(name) + len(name))
        for name in known
        if name in question
    ]
    return Exchange(
        question=question,
        names=tuple(sorted(names, key=lambda name: name.start)),
        answers=tuple(Thing(id=answer, label=answer) for answer in answers),
    )


def after(understood: Understood) -> Exchange:
    return Exchange(question=understood.question, names=understood.names, topic=understood.topic)


HEAT = exchange("Who directed Heat?", "Michael Mann")
SARA = exchange("Where was Sara Veld born?", "Delft")
MOTHER = exchange("Who is Sara Veld's mother?", "Fatima Veld")
STARS = exchange("Who directed or produced Heat?", "Michael Mann", "Ann Biderman")


@pytest.mark.parametrize(
    ("before", "said", "meant"),
    [
        # references
        (HEAT, "Where was he born?", "Where was Michael Mann born?"),
        (HEAT, "Who produced it?", "Who produced Heat?"),
        (HEAT, "what is its genre", "what is Heat's genre"),
        (HEAT, "Who is his spouse?", "Who is Michael Mann's spouse?"),
        (HEAT, "Who produced that film?", "Who produced Heat?"),
        (HEAT, "who produced the film?", "who produced Heat?"),
        (
            HEAT,
            "Which films did he direct besides Collateral?",
            "Which films did Michael Mann direct besides Collateral?",
        ),
        (MOTHER, "Where was she born?", "Where was Fatima Veld born?"),
        (SARA, "Who is her brother?", "Who is Sara Veld's brother?"),
        (SARA, "Who else was born there?", "Who else was born in Delft?"),
        (STARS, "Where were they born?", "Where were Michael Mann and Ann Biderman born?"),
        # fragments
        (HEAT, "And Collateral?", "Who directed Collateral?"),
        (HEAT, "What about Collateral?", "Who directed Collateral?"),
        (HEAT, "and of Collateral", "Who directed Collateral"),
        (HEAT, "Collateral?", "Who directed Collateral?"),
        (SARA, "And Ali Veld?", "Where was Ali Veld born?"),
        (SARA, "and of her brother?", "Where was Sara Veld's brother born?"),
        (SARA, "and her brother?", "Where was Sara Veld's brother born?"),
        (SARA, "And when?", "When was Sara Veld born?"),
        (SARA, "And in which year?", "In which year was Sara Veld born?"),
        (HEAT, "And the producer?", "What is the producer of Heat?"),
        (HEAT, "and its genre?", "What is Heat's genre?"),
        (MOTHER, "and her brother?", "Who is Fatima Veld's brother?"),
        (MOTHER, "and his brother?", "Who is Sara Veld's brother?"),
        (HEAT, "And who produced it?", "Who produced Heat?"),
        # another topic, and what is complete
        (HEAT, "Where was Ali Veld born?", "Where was Ali Veld born?"),
        (HEAT, "How many films are there?", "How many films are there?"),
        (HEAT, "Is it true that Al Pacino starred in Heat?", "Is it true that Al Pacino starred in Heat?"),
        (SARA, 'Who directed "Her"?', 'Who directed "Her"?'),
        (SARA, "Who is Michael Mann and where was he born?", "Who is Michael Mann and where was he born?"),
    ],
)
def test_a_follow_up_is_completed(graph: Acquaintances, before: Exchange, said: str, meant: str) -> None:
    understood = understand(said, [before], graph)

    assert understood.question.rstrip("?") == meant.rstrip("?")
    assert understood.is_changed == (meant.rstrip("?") != said.rstrip("?"))
    for name in understood.names:
        assert understood.question[name.start : name.end] == name.label


def test_a_fragment_after_a_fragment_replaces_what_the_first_one_put_in(graph: Acquaintances) -> None:
    first = understand("and of her brother?", [SARA], graph)
    second = understand("And her mother?", [SARA, after(first)], graph)
    third = understand("And Michael Mann?", [SARA, after(first), after(second)], graph)

    assert second.question == "Where was Sara Veld's mother born?"
    assert third.question == "Where was Michael Mann born?"


def test_of_two_that_agree_the_latest_is_meant(graph: Acquaintances) -> None:
    assert understand("Where was she born?", [SARA, MOTHER], graph).question == "Where was Fatima Veld born?"
    assert understand("Where was he born?", [HEAT, SARA], graph).question == "Where was Sara Veld born?"


@pytest.mark.parametrize(
    ("exchanges", "said", "words"),
    [
        ([], "Where was he born?", "he"),
        ([], "And Ali Veld?", "And Ali Veld?"),
        ([exchange("What is the genre of Heat?", "crime")], "Where was he born?", "he"),
        ([exchange("How many films are there?")], "And Collateral?", "And Collateral?"),
    ],
)
def test_what_was_not_mentioned_is_an_error(
    graph: Acquaintances, exchanges: list[Exchange], said: str, words: str
) -> None:
    with pytest.raises(ConversationError, match="was not mentioned") as error:
        understand(said, exchanges, graph)
    assert f'"{words}"' in str(error.value)


def test_the_topics_are_given_only_where_the_text_would_find_others(graph: Acquaintances) -> None:
    assert understand("Where was he born?", [HEAT], graph).topics(graph) == ()

    homonym = Exchange(question="Who directed it?", answers=(Thing(id="Al Pacino", label="Michael Mann"),))
    assert understand("Where was he born?", [homonym], graph).topics(graph) == ("Al Pacino",)

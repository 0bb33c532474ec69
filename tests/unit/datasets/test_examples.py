"""Which of the questions about a graph are shown to its users."""

from __future__ import annotations

import pytest

from kbqa.datasets.examples import MOST, choose_examples
from kbqa.trajectory import Question


def asked(text, operation="path", topic="Heat", answers=("x",)):
    return Question(text, text, answers, (topic,), "films", operation=operation)


@pytest.mark.parametrize(
    ("natural", "other"),
    [
        ("which people directed the film that was shot in Chicago ?", "what directs Heat ?"),
        ("which films star Al Pacino and Val Kilmer ?", "who are the films of Al Pacino ?"),
        ("which of the films of Mann has the latest release year ?", "who is which of the films first ?"),
        ("how many films star Al Pacino ?", "how many things star him ?"),
        ("did Michael Mann direct the film Heat ?", "is people that directed Heat Mann ?"),
        ("when was the film Heat released ?", "the year of Heat"),
    ],
)
def test_what_people_would_ask_comes_before_what_is_shorter(natural, other):
    [chosen] = choose_examples([asked(other), asked(natural)])
    assert chosen.text == f"{natural[0].upper()}{natural[1:].removesuffix(' ?')}?"


def test_there_is_one_of_each_operation_and_none_with_many_answers_or_about_a_number_if_there_are_others():
    numbered = asked("which films are in 1995 ?", topic="1995")
    long_list = asked("which films ?", answers=tuple("abcdef"))
    wanted = asked("which films did Mann direct before Ali ?")
    assert [one.id for one in choose_examples([numbered, long_list, wanted])] == [wanted.id]
    many = [asked(f"which films have {n} ?", operation=f"operation {n}") for n in range(MOST + 2)]
    assert len(choose_examples(many)) == MOST

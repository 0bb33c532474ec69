"""What the gold agent says, from results that are given here."""

from __future__ import annotations

import pytest

from kbqa.kg.actions import Item, Success
from kbqa.trajectory import Question
from tests.gold.graphs import WRONG, Case
from tests.gold.scripts import Slip, plan

ASKED = "SELECT ?x WHERE { ns:m.0c ns:r ?x }"
FOUND = Success((Item("m.0b", "Berlin"), Item("m.0a", "Athens")), 2)


@pytest.mark.parametrize(("slip", "answer"), [(Slip.NONE, "Berlin"), (Slip.ANSWER, WRONG)])
def test_who_gives_one_of_several_values_is_wrong_about_this_one(slip, answer):
    question = Question("q", "?", ("Berlin",), (), "freebase", sparql=ASKED)
    script = plan("sparql_refinement", question, Case("q", frozenset(), {}), 11, slip).script
    next(script)
    assert f"<answer>{answer}</answer>" in script.send([FOUND])

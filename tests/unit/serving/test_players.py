"""What plays the episodes of a recipe."""

from __future__ import annotations

from kbqa.kg.terms import GraphTerms
from kbqa.policies.base import Truncation
from kbqa.protocols.kg_r1 import KgR1
from kbqa.recipes import load_recipe
from kbqa.serving.players import GREEDY, Draw, Players
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

CODEC = make_codec()


class Tools:
    """Tools that nobody asks."""


def test_training_asks_on_the_recipes_terms_and_users_do_not_wait_as_long():
    recipe = load_recipe("kbqa-r1")
    players = Players.of(recipe, ScriptedPolicy(CODEC, lambda _: ""), CODEC)
    assert players.terms == GraphTerms(600, "princeton-nlp/sup-simcse-roberta-large")
    assert players.interactive().terms == GraphTerms(None, "princeton-nlp/sup-simcse-roberta-large")
    tools = Tools()
    assert players.player(tools, 0).tools is not tools
    plain = Players.of(load_recipe("kg-r1"), ScriptedPolicy(CODEC, lambda _: ""), CODEC)
    assert isinstance(plain.protocol, KgR1)
    assert plain.player(tools, 0).tools is tools


def test_of_several_runs_the_first_is_greedy_and_the_others_are_sampled():
    """KG-R1's N runs (4.1, D.4): evaluation is greedy, and a union of equal runs would add nothing."""
    players = Players.of(load_recipe("kg-r1"), ScriptedPolicy(CODEC, lambda _: ""), CODEC)
    assert players.draw(0) == GREEDY
    assert {players.draw(run).temperature for run in (1, 2, 3)} == {1.0}


def test_a_recipe_says_how_its_runs_are_sampled():
    rollout = {"rollout.temperature": 0.7, "rollout.top_p": 0.9}
    evaluation = {"evaluation.temperature": 0.2, "evaluation.top_k": 20}
    recipe = load_recipe("kg-r1", rollout | evaluation)
    players = Players.of(recipe, ScriptedPolicy(CODEC, lambda _: ""), CODEC)
    drawn = Draw(0.2, Truncation(top_k=20)), Draw(0.7, Truncation(top_p=0.9))
    assert (players.draw(0), players.draw(1)) == drawn
    assert [players.player(Tools(), run).truncation for run in (0, 1)] == [draw.truncation for draw in drawn]
    chat = Players.of_chat(recipe, None)
    assert (chat.draw(0), chat.draw(1)) == drawn

"""KBQA-R1's dialect, played against a graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import KbqaR1, PredictedAnswer
from tests.unit.episodes import question

TRIPLES = [
    ("Al P", "film.actor.film", "Heat"),
    ("Al P", "film.actor.film", "Serpico"),
    ("Val K", "film.actor.film", "Heat"),
    ("Heat", "film.film.directed_by", "Michael M"),
    ("Heat", "film.film.runtime", "170"),
    ("Serpico", "film.film.runtime", "130"),
    ("Heat", "type.object.type", "film.film"),
    ("Serpico", "type.object.type", "film.film"),
]


@pytest.fixture(scope="module")
def tools():
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}))


@pytest.fixture
def play(tools):
    """Plays turns of one episode; each gives what the policy reads."""
    dialogue = KbqaR1("brief").begin(question(topic="Al P"), 6)

    def turn(text, turns_left=3):
        reply = dialogue.reply(f"<think>t</think><action>{text}</action>")
        turn.reply, actions = reply, reply.actions
        if reply.problem is not None:
            return "".join(s.text for s in dialogue.complaint(reply.problem, turns_left))
        while actions:
            actions = dialogue.take(tools.execute("films", actions))
        return "".join(s.text for s in dialogue.observation(turns_left))

    turn.dialogue = dialogue
    return turn


def test_a_relation_leads_to_an_expression_and_its_members(play):
    seen = play("Find_relation [ Al P | film.actor.film ]")
    assert play.reply.well_formed
    assert seen.startswith("<information>expression1 = (JOIN (R film.actor.film) `Al P`)\n")
    assert "result_mid_list: [ Heat, Serpico ]" in seen


def test_several_actions_of_a_turn_build_on_one_another(play):
    seen = play(
        "Find_relation [ Al P | film.actor.film ]\n"
        "Find_relation [ Val K | film.actor.film ]\n"
        "Merge [ expression1 | expression2 ]\n"
        "Find_relation [ expression3 | film.film.directed_by ]\n"
        "Count [ expression1 ]"
    )
    assert "expression3 = (AND " in seen
    assert "result_mid_list: [ Michael M ]" in seen
    assert seen.count("result_mid_list: [ Heat ]") == 2  # of Val K, and of both
    assert "expression5 = (COUNT " in seen
    assert seen.endswith("result_mid_list: [ 2 ]</information>")
    reply = play.dialogue.reply("<think>t</think><answer>expression5</answer>")
    assert [answer.text for answer in reply.answers] == ["2"]


def test_superlatives_and_comparisons_are_gated_and_executed(play):
    play("Find_relation [ Al P | film.actor.film ]")
    assert "[ Heat ]" in play("Order [ MAX | expression1 | film.film.runtime ]")
    assert "[ Serpico ]" in play("Order [ min | expression1 | film.film.runtime ]")


def test_a_relation_that_is_only_similar_is_executed_with_the_candidates(play):
    seen = play("Find_relation [ Heat | film directed ]")
    assert "Michael M" in seen
    assert "the most similar relation film.film.directed_by was selected, score=0." in seen
    assert "If none of them fits, change the relation." in seen


def test_a_relation_that_resembles_nothing_is_rejected_with_the_neighbours(play):
    seen = play("Find_relation [ Heat | zzqx ]")
    assert 'No relation matched "zzqx" connected to "Heat"' in seen
    assert "film.film.directed_by (0." in seen
    assert "film.film.runtime (" in seen
    assert "expression" not in seen.split("The neighbouring")[0].replace("expressions", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Find_relation [ Nobody | film.actor.film ]", 'Entity "Nobody" not found in KG'),
        ("Merge [ expression1 | expression2 ]", "there is no expression1"),
        ("Guess [ x ]", "there are Find_relation, Merge, Order, Compare, Time_constraint, Count"),
        ("Merge [ expression1 ]", "write Merge [ "),
        ("look at Al P", "no line Name [ argument | argument ]"),
    ],
)
def test_what_cannot_be_done_is_told(play, text, told):
    assert told in play(text)


def test_an_action_that_fails_leaves_the_others(play):
    seen = play("Guess [ x ]\nFind_relation [ Al P | film.actor.film ]")
    assert not play.reply.well_formed
    assert seen.index("Guess [ x ]") < seen.index("expression1 = ")


def test_answers_are_names_that_were_seen_or_words(play):
    play("Find_relation [ Heat | film.actor.film ]")
    reply = play.dialogue.reply("<think>t</think><answer> Val K Al P 1999 </answer>")
    assert reply.answers == (
        PredictedAnswer("Val K", ("Val K",)),
        PredictedAnswer("Al P", ("Al P",)),
        PredictedAnswer("1999"),
    )
    assert reply.well_formed


def test_an_answer_may_be_an_expression(play):
    play("Find_relation [ Al P | film.actor.film ]")
    reply = play.dialogue.reply("<think>t</think><answer>expression1</answer>")
    assert [answer.text for answer in reply.answers] == ["Heat", "Serpico"]
    assert play.dialogue.reply("<answer>expression7</answer>").answers == (PredictedAnswer("expression7"),)


def test_the_last_turn_is_announced(play):
    assert "Because this is the final turn" in play("Find_relation [ Al P | film.actor.film ]", turns_left=1)


def test_the_prompt_offers_the_actions_of_the_recipe():
    protocol = KbqaR1(actions=("Find_relation", "Merge"))
    text = "".join(segment.text for segment in protocol.begin(question(), 6).prompt())
    assert "Available Actions : {" in text
    assert "Merge [" in text
    assert "Compare" not in text
    assert text.endswith("Candidate Entities: [ Ada ]\nQuestion: who ?\n")


def test_only_a_gate_is_said_to_find_the_nearest_relation_and_to_list_the_others():
    """Without RRCG (table VI), a relation that is not written exactly is refused."""
    gated, exact = (
        KbqaR1(gated=gated).begin(question(), 6).opening(native_tools=False).system for gated in (True, False)
    )
    assert "if none fits, it lists the neighbouring relations. Entities are named" in gated
    assert "A relation is named exactly, by its id or its name" in exact
    assert "nearest" not in exact
    assert "neighbouring" not in exact
    assert gated.partition("Entities are")[2] == exact.partition("Entities are")[2]


ASK = "<action>Find_relation [ Al P | film.actor.film ]</action>"


@pytest.mark.parametrize(
    ("text", "is_strict", "otherwise"),
    [
        (f"<think>a</think>{ASK}", True, True),
        ("<think>a</think><answer>Heat</answer>", True, True),
        (f"<think></think>{ASK}", False, True),
        ("<think> \n</think><answer>Heat</answer>", False, True),
        (f"<think>a<think>b</think>{ASK}", False, False),
        ("<think><information>Heat</information></think><answer>Heat</answer>", False, False),
        ("<think>a</think><answer><information>Heat</answer>", False, False),
        (f"a{ASK}", False, False),
    ],
)
def test_a_format_is_not_to_be_had_by_nested_or_made_up_tags_nor_strictly_by_empty_ones(
    text, is_strict, otherwise
):
    """Tag order (IV-C1), as sexpr_format.py of the released code checks it; it lets a thought be empty."""
    for strict, expected in ((True, is_strict), (False, otherwise)):
        reply = KbqaR1(strict=strict).begin(question(topic="Al P"), 6).reply(text)
        assert reply.problem is None
        assert reply.well_formed is expected


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text):
    dialogue = KbqaR1("brief").begin(question(), 6)
    dialogue.reply(text)
    dialogue.reply(f"<think>{text}</think><action>Find_relation [{text}]\nOrder [ {text} ]</action>")
    dialogue.reply(f"<answer>{text}</answer>")

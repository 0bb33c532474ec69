"""What becomes a demonstration, and why the rest does not."""

from __future__ import annotations

import pytest

from kbqa.cold_start.filters import Rejection, exact, outcome, referenced, score
from kbqa.cold_start.leaks import Leak, find_leaks
from kbqa.protocols import KbqaR1, KgR1
from tests.unit.cold_start.films import ANSWER, BORN, STARRING, THEN_BORN, action, played, turn

PROTOCOL = KbqaR1("brief")
GOLD = (turn("First its actors.", STARRING), turn("Then their birth.", THEN_BORN), turn("Done.", ANSWER))


def ending(answer, protocol=PROTOCOL):
    return played(BORN, protocol, *GOLD[:2], turn("Done.", f"<answer>{answer}</answer>"))


@pytest.mark.parametrize(
    ("answer", "of_outcome", "of_reference", "f1"),
    [
        ("expression2", None, None, 1.0),
        ("1940 1959", None, None, 1.0),
        ("1940", None, Rejection.INCORRECT, 2 / 3),  # one gold answer is enough for KnowCoder-A1's EM
        ("1940 Nobody", Rejection.UNGROUNDED, Rejection.INCORRECT, 0.5),
        ("1948", Rejection.INCORRECT, Rejection.INCORRECT, 0.0),
        ("", Rejection.INCORRECT, Rejection.INCORRECT, 0.0),
    ],
)
def test_an_answer_passes_or_says_why_not(answer, of_outcome, of_reference, f1):
    episode = ending(answer)
    assert (outcome(episode), referenced(episode)) == (of_outcome, of_reference)
    assert score(episode) == pytest.approx(f1)


def test_an_answer_that_was_never_observed_is_not_grounded_though_it_is_right():
    guessed = played(BORN, PROTOCOL, turn("I know it.", "<answer>1940 1959</answer>"))
    assert outcome(guessed) is Rejection.UNGROUNDED
    assert referenced(guessed) is None  # what finds this is the leak check
    assert {finding.leak for finding in find_leaks(guessed)} == {Leak.ANSWER}


def test_nine_of_ten_are_not_enough_for_a_referenced_rollout():
    from dataclasses import replace

    # P 1, R 9/11: F1 is 0.9 exactly.
    names = tuple(str(year) for year in range(11))
    question = replace(BORN, answers=names)
    episode = played(question, PROTOCOL, turn("", f"<answer>{' '.join(names[:9])}</answer>"))
    assert score(episode) == pytest.approx(0.9)
    assert referenced(episode) is Rejection.INCORRECT
    more = played(question, PROTOCOL, turn("", f"<answer>{' '.join(names[:10])}</answer>"))
    assert referenced(more) is None


def test_a_turn_that_breaks_the_format_spoils_a_referenced_rollout_and_not_an_outcome():
    stumbling = (GOLD[0], "no tags at all", *GOLD[1:])
    episode = played(BORN, PROTOCOL, *stumbling)
    assert outcome(episode) is None  # it recovered from an error, which is worth showing
    assert referenced(episode) is exact(episode) is Rejection.MALFORMED
    assert not episode.turns[1].understood


def test_an_episode_without_answers_is_unanswered():
    episode = played(BORN, PROTOCOL, *GOLD[:2])
    assert {check(episode) for check in (outcome, referenced, exact)} == {Rejection.UNANSWERED}


def leaks(*turns, plans=False, question=BORN, protocol=PROTOCOL):
    episode = played(question, protocol, *turns)
    return [(finding.leak, finding.turn, finding.says) for finding in find_leaks(episode, plans=plans)]


def test_an_episode_that_says_what_it_knows_leaks_nothing():
    assert leaks(*GOLD) == []
    seen = turn("1940 and 1959 it is; expression2 holds them.", ANSWER)
    assert leaks(*GOLD[:2], seen) == []


@pytest.mark.parametrize(
    "thought",
    [
        "The reference step says so.",
        "[Reference: the next step is …]",
        "As hinted, I take the actors.",
        "The ground-truth relation is this.",
        "It follows the golden action.",
    ],
)
def test_talk_of_a_hint_is_a_leak(thought):
    [(leak, number, _)] = leaks(turn(thought, STARRING), *GOLD[1:])
    assert (leak, number) == (Leak.HINT, 1)


@pytest.mark.parametrize("thought", ["A hint of drama.", "Which references there are, I see next."])
def test_the_words_alone_are_none(thought):
    assert leaks(turn(thought, STARRING), *GOLD[1:]) == []


def test_a_gold_answer_before_it_was_seen_is_a_leak():
    assert leaks(turn("Al P was born in 1940.", STARRING), *GOLD[1:]) == [(Leak.ANSWER, 1, "1940")]
    assert leaks(turn("Sometime in 19400.", STARRING), *GOLD[1:]) == []  # within another number
    from dataclasses import replace

    asked = replace(BORN, text="who of Heat was born in 1940 or 1959 ?")
    assert leaks(turn("1940 or 1959.", STARRING), *GOLD[1:], question=asked) == []


def test_a_later_step_in_an_earlier_thought_is_a_leak_unless_a_plan_is_meant_to_be_one():
    early = turn("I shall look into expression1 later.", STARRING)
    assert leaks(early, *GOLD[1:]) == [(Leak.LATER_STEP, 1, "expression1")]
    assert leaks(early, *GOLD[1:], plans=True) == []

    born = turn("From Heat, then starred_actors.", action("Find_relation [ Heat | actors ]"))
    retried = turn("Its relation is starred_actors.", STARRING)
    assert (Leak.LATER_STEP, 1, "starred_actors") in leaks(born, retried, turn("", ANSWER))


def test_what_an_observation_showed_may_be_thought_of():
    protocol = KgR1("brief")
    look = turn("What is there?", '<kg-query>get_tail_relations("Heat")</kg-query>')
    seen = turn("I take starred_actors.", '<kg-query>get_tail_entities("Heat", "starred_actors")</kg-query>')
    planned = turn("I will need starred_actors.", '<kg-query>get_tail_relations("Heat")</kg-query>')
    assert leaks(look, seen, protocol=protocol) == []
    assert leaks(planned, seen, protocol=protocol) == [(Leak.LATER_STEP, 1, "starred_actors")]


def test_relations_are_not_renamed_as_entities_are():
    look = turn("", '<kg-query>get_tail_relations("Heat")</kg-query>')
    take = turn("", '<kg-query>get_tail_entities("Heat", "starred_actors")</kg-query>')
    assert set(
        played(BORN, KgR1("brief"), look, take, turn("", "<answer>1940</answer>")).demonstration.names
    ) == {
        "Heat",
        "Al P",
        "Val K",
    }

"""KnowCoder-A1's reward: the paper's example, and its penalties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbqa.rewards import Instruments, KnowCoderA1Reward
from kbqa.trajectory import ExecutedAction, Status, Trajectory
from tests.unit.episodes import question, turn

GOLD = question("A1", "A2")


def play(*answers, boxed=True, turns=()):
    end = 5 * len(turns)
    last = turn(end + 1, end + 5, status=Status.ANSWERED)
    last = replace(
        last, text="<answer> the answer is \\boxed{[]} </answer>" if boxed else "<answer></answer>"
    )
    return Trajectory(tuple(range(100)), (*turns, last), Status.ANSWERED, answers)


def score(trajectory, **options):
    return KnowCoderA1Reward(**options).score(GOLD, trajectory, Instruments(tools=None, judge=None)).outcome


@pytest.mark.parametrize(
    ("answers", "beta", "expected"),
    [
        (["A1"], 0.5, 0.1 + 5 / 6),  # printed 0.83; with the format reward 0.933
        (["A1", "A2", "A3", "A4"], 0.5, 0.1 + 5 / 9),  # printed 0.55; 0.656
        (["A1", "A2"], 0.5, 1.0),  # capped
        (["A1"], 1.0, 0.1 + 2 / 3),
        ([], 0.5, 0.1),
        (["A3"], 0.5, 0.1),
    ],
)
def test_worked_values(answers, beta, expected):
    assert score(play(*answers), beta=beta) == pytest.approx(expected)


def test_any_right_answer_is_enough_where_hits_are_measured():
    """Table 3's EM reward, which a list of everything satisfies."""
    assert score(play("A1", *(f"B{n}" for n in range(50))), measure="hit") == 1.0
    assert score(play("B1"), measure="hit") == pytest.approx(0.1)


def test_without_a_box_there_is_no_format_reward():
    assert score(play(boxed=False)) == 0.0


def call(query, observation="", kind=None):
    code = "KG_SERVER_ERROR" if kind else None
    action = ExecutedAction("execute_sparql", {"query": query}, code, kind=kind)
    return replace(turn(1, 5, actions=[action]), observation=observation)


PENALTIES = {"unseen_penalty": 0.2, "timeout_penalty": 0.2}


@pytest.mark.parametrize(
    ("turns", "penalty"),
    [
        ([call("?x ns:people.person.spouse ns:m.0abc")], 0.2),  # a relation that nothing showed
        ([call("ns:m.0abc", "(?x, people.person.spouse, ..)"), call("ns:people.person.spouse ?x")], 0.0),
        ([call("?x ns:type.object.type ?t")], 0.0),
        # Of a delimited file, whose entities are IRIs too.
        ([call("<urn:kbqa:e:Ada> <urn:kbqa:r:child%20of> ?x")], 0.2),
        ([call("", "child of Byron"), call("<urn:kbqa:e:Ada> <urn:kbqa:r:child%20of> ?x")], 0.0),
        ([call("SELECT", kind="query_timeout")], 0.2),
        ([call("?x ns:a.b.c ?y", kind="query_timeout")], 0.4),
        ([call("?x ns:a.b.c ?y", kind="query_timeout")] * 3, 0.5),  # capped
    ],
)
def test_penalties_for_what_was_not_seen_and_for_timeouts(turns, penalty):
    assert score(play("A1", "A2", turns=turns), **PENALTIES) == pytest.approx(1.0 - penalty)
    assert score(play("A1", "A2", turns=turns)) == 1.0  # off unless a recipe asks for them

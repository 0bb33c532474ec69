import pytest

from kbqa.rewards import Instruments, KgR1Reward
from kbqa.trajectory import Status, Trajectory
from tests.unit.episodes import query, question, turn


def score(reward, question, trajectory):
    return reward.score(question, trajectory, Instruments(tools=None, judge=None))  # it needs neither


def play(*turns, answers=()):
    last = turns[-1].status
    status = Status.ANSWERED if last is Status.ANSWERED else Status.OUT_OF_TURNS
    return Trajectory(tuple(range(100)), turns, status, tuple(answers))


def test_a_good_query_and_a_good_answer_earn_one_each_and_two_globally():
    """Table 8: 0.5 format + 0.5 query; 0.5 format + 0.5 answer; F1 1 + retrieval 1."""
    trajectory = play(turn(1, 5, actions=[query()]), turn(6, 9, status=Status.ANSWERED), answers=["Byron"])
    scored = score(KgR1Reward(), question("Byron"), trajectory)
    assert scored.turn_rewards == (1.0, 1.0)
    assert scored.outcome == 2.0
    assert scored.components == {"f1": 1.0, "em": 1.0, "hit": 1.0, "retrieval": 1.0}


def test_a_failed_query_earns_its_format_alone():
    failed = turn(1, 5, status=Status.ACTION_ERROR, actions=[query(code="KG_NO_RESULTS")])
    scored = score(KgR1Reward(), question(), play(failed))
    assert scored.turn_rewards == (0.5,)
    assert scored.outcome == 0.0


def test_an_unparsable_turn_earns_nothing():
    scored = score(KgR1Reward(), question(), play(turn(1, 5, status=Status.UNPARSABLE, well_formed=False)))
    assert scored.turn_rewards == (0.0,)


def test_retrieving_gold_without_answering_earns_retrieval_alone():
    scored = score(KgR1Reward(), question("Byron"), play(turn(1, 5, actions=[query()])))
    assert scored.outcome == 1.0


def test_answering_what_was_never_retrieved_earns_f1_alone():
    scored = score(
        KgR1Reward(),
        question("Byron", "Annabella"),
        play(turn(1, 4, status=Status.ANSWERED), answers=["Byron"]),
    )
    assert scored.outcome == pytest.approx(2 / 3)


def test_an_empty_answer_earns_no_answer_reward():
    scored = score(KgR1Reward(), question(), play(turn(1, 4, status=Status.ANSWERED)))
    assert scored.turn_rewards == (0.5,)


@pytest.mark.parametrize(("unique", "second"), [(False, 1.0), (True, 0.5)])
def test_a_repeated_query_pays_again_only_in_the_paper(unique, second):
    trajectory = play(turn(1, 5, actions=[query()]), turn(6, 9, actions=[query()]))
    scored = score(KgR1Reward(unique_queries=unique), question(), trajectory)
    assert scored.turn_rewards == (1.0, second)

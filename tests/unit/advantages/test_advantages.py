import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.advantages import (
    Advantage,
    Baseline,
    has_spread,
    pooled,
    trajectory_returns,
    turn_and_outcome,
    turn_returns,
)
from kbqa.trajectory import Group, training_sample
from tests.unit.episodes import question, rewarded


def test_group_advantages_are_standardised_with_the_population_deviation():
    # mean 2, deviation sqrt((4 + 0 + 4) / 3)
    deviation = math.sqrt(8 / 3)
    assert Baseline().advantages([0.0, 2.0, 4.0]) == pytest.approx(
        [-2 / deviation, 0, 2 / deviation], abs=1e-5
    )


def test_mean_only_advantages_leave_the_deviation_out():
    assert Baseline("none").advantages([0.0, 2.0, 4.0]) == [-2.0, 0.0, 2.0]


def test_a_samples_deviation_divides_by_one_less():
    # deviation sqrt((4 + 0 + 4) / 2) = 2
    assert Baseline("sample").advantages([0.0, 2.0, 4.0]) == pytest.approx([-1, 0, 1], abs=1e-5)
    assert Baseline("sample").advantages([3.0]) == [0.0]


def test_advantages_may_be_bounded():
    returns = [0.0] * 199 + [1.0]
    assert Baseline().advantages(returns)[-1] == pytest.approx(math.sqrt(199), abs=1e-3)
    assert Baseline(bound=10.0).advantages(returns)[-1] == 10.0


def test_turn_advantages_pool_all_turns_of_a_ragged_group():
    """Worked by hand: returns G = r + R are (3, 3), (1), (0.5, 1, 0.5, 1).

    Their mean over seven turns is 10/7; squared deviations sum to 7.5 + 11 - 100/7 ... that is
    sum of squares 9 + 9 + 1 + 0.25 + 1 + 0.25 + 1 = 21.5, variance 21.5/7 - (10/7)^2.
    """
    returns = turn_returns([[1.0, 1.0], [1.0], [0.5, 1.0, 0.5, 1.0]], [2.0, 0.0, 0.0])
    advantages = pooled(returns, Baseline())
    mean, deviation = 10 / 7, math.sqrt(21.5 / 7 - (10 / 7) ** 2)
    expected = [[3, 3], [1], [0.5, 1, 0.5, 1]]
    for row, values in zip(advantages, expected, strict=True):
        assert row == pytest.approx([(value - mean) / deviation for value in values], abs=1e-5)


def test_lambda_weighs_the_outcome():
    assert turn_returns([[1.0], [0.0]], [0.0, 1.0], lam=0.5) == [[1.0], [0.5]]
    assert turn_returns([[1.0], [0.0]], [0.0, 1.0], lam=1.0) == [[1.0], [1.0]]


def test_turn_rewards_and_outcomes_may_be_standardised_apart():
    """Turn rewards 1, 0, 1 have mean 2/3 and deviation sqrt(2)/3; outcomes 1, 0 become 1 and -1."""
    advantages = turn_and_outcome(
        [[1.0, 0.0], [1.0]], [1.0, 0.0], Baseline(), turn_weight=0.5, outcome_weight=1.0
    )
    high, low = 1 / math.sqrt(2), -math.sqrt(2)
    assert advantages[0] == pytest.approx([1 + high / 2, 1 + low / 2], abs=1e-4)
    assert advantages[1] == pytest.approx([-1 + high / 2], abs=1e-4)


def test_trajectory_returns_average_the_turns_and_add_the_outcome():
    assert trajectory_returns([[1.0, 0.5], [0.5]], [2.0, 0.0]) == [2.75, 0.5]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20))
def test_group_advantages_sum_to_zero(returns):
    assert sum(Baseline().advantages(returns)) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("kind", ["turn", "group", "turn_and_outcome"])
def test_a_group_without_spread_gives_no_samples(kind):
    group = Group("g", question(), (rewarded([0.5], 0.5), rewarded([0.5], 0.5)))
    assert Advantage(kind).samples(group) == []


def test_spread_not_the_mean_decides():
    """A group whose mean is 0.5 may be without spread, one whose mean is 0 may have some."""
    assert not has_spread([0.5, 0.5])
    assert has_spread([-0.5, 0.5])


def test_a_samples_mask_covers_exactly_the_turns():
    member = rewarded([1.0, 1.0], 0.0, length=3)
    sample = training_sample(member.trajectory, [0.25, -0.5])
    assert sample.mask == (False, True, True, True, False, True, True, True)
    assert sample.advantages == (0, 0.25, 0.25, 0.25, 0, -0.5, -0.5, -0.5)
    assert sample.logprobs == (0, -0.5, -0.5, -0.5, 0, -0.5, -0.5, -0.5)


def test_one_advantage_a_turn_is_asked_for():
    with pytest.raises(ValueError, match="1 advantages for 2 turns"):
        training_sample(rewarded([1.0, 1.0], 0.0).trajectory, [0.1])


def test_a_turn_whose_log_probabilities_are_not_those_of_its_tokens_is_refused():
    trajectory = rewarded([1.0], 0.0).trajectory
    short = replace(trajectory, turns=(replace(trajectory.turns[0], logprobs=()),))
    with pytest.raises(ValueError, match="0 log-probabilities for"):
        training_sample(short, [0.1])


def test_group_kind_gives_every_turn_of_a_trajectory_the_same_value():
    group = Group("g", question(), (rewarded([1.0, 0.0], 1.0), rewarded([0.5], 0.0)))
    samples = Advantage("group").samples(group)
    masked = {a for a, m in zip(samples[0].advantages, samples[0].mask, strict=True) if m}
    assert len(masked) == 1
    assert masked.pop() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kind", ["group", "turn", "turn_and_outcome"])
def test_a_group_without_spread_is_dropped_or_kept_with_advantages_of_0(kind):
    """Kept, its tokens count in the KL term and in the denominators of the objective (KG-R1, 3.3)."""
    group = Group("g", question(), (rewarded([0.1, 0.1], 1.0), rewarded([0.1, 0.1], 1.0)))
    assert Advantage(kind).samples(group) == []
    kept = Advantage(kind, without_spread="kept").samples(group)
    assert len(kept) == 2
    assert all(any(sample.mask) for sample in kept)
    assert not any(any(sample.advantages) for sample in kept)


@pytest.mark.parametrize("kind", ["group", "turn", "turn_and_outcome"])
@pytest.mark.parametrize(("f1", "samples"), [(0.0, 2), (0.4, 2), (1.0, 0)])
def test_groups_without_spread_can_be_kept_where_no_trajectory_is_right(kind, f1, samples):
    group = Group("g", question(), (rewarded([0.1, 0.1], f1), rewarded([0.1, 0.1], f1)))
    kept = Advantage(kind, without_spread="unsolved_kept").samples(group)
    assert len(kept) == samples
    assert not any(any(sample.advantages) for sample in kept)


def test_a_weight_of_the_turn_rewards_is_the_inverse_of_lambda():
    """KG-R1's E.3 states w_turn = 0.5: G = 0.5 r + R gives the advantages of G = r + 2 R."""
    rewards, outcomes = [[1.0, 0.5], [0.0]], [2.0, 0.3]
    halved = [[0.5 * reward for reward in row] for row in rewards]
    weighted = pooled(turn_returns(halved, outcomes, lam=1.0), Baseline(epsilon=1e-12))
    doubled = pooled(turn_returns(rewards, outcomes, lam=2.0), Baseline(epsilon=1e-12))
    assert weighted == [pytest.approx(row) for row in doubled]

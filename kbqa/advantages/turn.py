"""KG-R1's advantages: every turn has its own value (section 3.3, Eq. 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbqa.advantages.group import Baseline


def turn_returns(
    turn_rewards: Sequence[Sequence[float]], outcomes: Sequence[float], lam: float = 1.0
) -> list[list[float]]:
    """G_t = r_t + lambda R, for each turn of each trajectory (ragged)."""
    return [
        [reward + lam * outcome for reward in rewards]
        for rewards, outcome in zip(turn_rewards, outcomes, strict=True)
    ]


def pooled(returns: Sequence[Sequence[float]], baseline: Baseline) -> list[list[float]]:
    """Advantages with one mean and one deviation over all turns of all N trajectories.

    Returns:
        Advantages in the shape of `returns`.
    """
    values = iter(baseline.advantages([value for row in returns for value in row]))
    return [_take(values, len(row)) for row in returns]


def turn_and_outcome(
    turn_rewards: Sequence[Sequence[float]],
    outcomes: Sequence[float],
    baseline: Baseline,
    *,
    turn_weight: float,
    outcome_weight: float,
) -> list[list[float]]:
    """Turn rewards and outcomes, standardised separately and then added (KG-R1's released code).

    A_t = w_turn A(r_t over all turns) + w_outcome A(R over the trajectories)
    """
    turns, whole = pooled(turn_rewards, baseline), baseline.advantages(outcomes)
    return [
        [turn_weight * turn + outcome_weight * outcome for turn in row]
        for row, outcome in zip(turns, whole, strict=True)
    ]


def trajectory_returns(turn_rewards: Sequence[Sequence[float]], outcomes: Sequence[float]) -> list[float]:
    """The ablation of appendix E.3: G = mean over turns of r_t, plus R; one value per trajectory."""
    return [
        sum(rewards) / len(rewards) + outcome for rewards, outcome in zip(turn_rewards, outcomes, strict=True)
    ]


def _take(values: Iterator[float], count: int) -> list[float]:
    return [next(values) for _ in range(count)]

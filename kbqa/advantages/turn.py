"""KG-R1's turn-level advantages (section 3.3, Eq. 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbqa.advantages.group import group_advantages


def turn_returns(
    turn_rewards: Sequence[Sequence[float]], outcomes: Sequence[float], lam: float = 1.0
) -> list[list[float]]:
    """G_t = r_t + lambda R, for each turn of each trajectory (ragged)."""
    return [
        [reward + lam * outcome for reward in rewards]
        for rewards, outcome in zip(turn_rewards, outcomes, strict=True)
    ]


def turn_advantages(
    turn_rewards: Sequence[Sequence[float]], outcomes: Sequence[float], lam: float = 1.0
) -> list[list[float]]:
    """One mean and one population deviation over all turns of all N trajectories.

    Returns:
        Advantages in the shape of `turn_rewards`.
    """
    returns = turn_returns(turn_rewards, outcomes, lam)
    pooled = iter(group_advantages([value for row in returns for value in row]))
    return [_take(pooled, len(row)) for row in returns]


def trajectory_returns(turn_rewards: Sequence[Sequence[float]], outcomes: Sequence[float]) -> list[float]:
    """The ablation of appendix E.3: G = mean over turns of r_t, plus R; one value a trajectory."""
    return [
        sum(rewards) / len(rewards) + outcome for rewards, outcome in zip(turn_rewards, outcomes, strict=True)
    ]


def _take(values: Iterator[float], count: int) -> list[float]:
    return [next(values) for _ in range(count)]

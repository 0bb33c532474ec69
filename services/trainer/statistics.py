"""Means over groups, for metrics records and evaluations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean

from kbqa.trajectory import Group, RewardedTrajectory, Status

_INVALID = frozenset({Status.UNPARSABLE, Status.ACTION_ERROR, Status.OUT_OF_TOKENS})


def episode_means(groups: Iterable[Group]) -> dict[str, float]:
    """Means over all episodes.

    Returns:
        `reward` (turn rewards and outcome), every component of the reward (f1, em, hit, …),
        `turns` and `generated_tokens` an episode, `answered` (share of episodes), and
        `invalid_actions` (share of turns that could not be understood or whose action failed).
        Empty if there is no episode.
    """
    members = [member for group in groups for member in group.members]
    if not members:
        return {}
    turns = [turn for member in members for turn in member.trajectory.turns]
    means = {
        "reward": fmean(sum(member.turn_rewards) + member.outcome for member in members),
        "turns": len(turns) / len(members),
        "generated_tokens": fmean(member.trajectory.generated_tokens for member in members),
        "answered": fmean(member.trajectory.status is Status.ANSWERED for member in members),
        "invalid_actions": fmean(turn.status in _INVALID for turn in turns) if turns else 0.0,
    }
    return means | component_means(members)


def component_means(members: Iterable[RewardedTrajectory]) -> dict[str, float]:
    """Mean of each component of the reward."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for member in members:
        for name, value in member.components.items():
            values[name].append(value)
    return {name: fmean(column) for name, column in values.items()}


def f1_by_hops(groups: Iterable[Group], hops: Mapping[str, int]) -> dict[str, float]:
    """Mean F1 by the length of the gold path.

    Args:
        hops: by question id; questions without a known path are left out.
    """
    values: defaultdict[str, list[float]] = defaultdict(list)
    for group in groups:
        count = hops.get(group.question.id, 0)
        if count:
            values[str(count)].extend(member.components["f1"] for member in group.members)
    return {count: fmean(column) for count, column in sorted(values.items())}

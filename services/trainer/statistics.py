"""Means over groups, for metrics records and evaluations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean

from kbqa.trajectory import Group, RewardedTrajectory, RewardedTree, ScoredRollout, Status

_INVALID = frozenset({Status.UNPARSABLE, Status.ACTION_ERROR, Status.OUT_OF_TOKENS})


def episode_means(groups: Iterable[ScoredRollout]) -> dict[str, float]:
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


def tree_means(groups: Iterable[ScoredRollout]) -> dict[str, float]:
    """Means over all trees among `groups`; empty if there is none.

    Returns:
        `branches` kept at a state (the effective branching factor), `pruned` (share of branches),
        `unexplored` (states of a tree that a cap or deadline left), and `success` (share of trees with an
        episode that is all right).
    """
    trees = [group for group in groups if isinstance(group, RewardedTree) and group.tree.steps]
    if not trees:
        return {}
    kept = sum(len(group.tree.steps) for group in trees)
    return {
        "branches": kept / sum(len(group.tree.states) for group in trees),
        "pruned": 1 - kept / sum(group.tree.sampled for group in trees),
        "unexplored": fmean(len(group.tree.leaves) - len(group.tree.ends) for group in trees),
        "success": fmean(
            any(group.components[end]["f1"] == 1.0 for end in group.tree.ends) for group in trees
        ),
    }


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

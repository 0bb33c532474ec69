"""ISP-KGR's advantages: a step relative to its siblings, the steps taken at the same state (G.1)."""

from __future__ import annotations

from collections.abc import Iterator

from kbqa.advantages.group import Baseline, has_spread
from kbqa.tree import RewardedTree, Siblings


def sibling_advantages(tree: RewardedTree, baseline: Baseline) -> Iterator[tuple[Siblings, list[float]]]:
    """The groups of a tree whose rewards have spread, and an advantage for each of their steps."""
    for group in tree.groups:
        rewards = [tree.rewards[index] for index in group.steps]
        if has_spread(rewards):
            yield group, baseline.advantages(rewards)

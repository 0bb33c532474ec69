"""How well an agent selects relations (KBQA-R1, section V-F and Figure 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from kbqa.kg.ranking.encoders import Encoder
from kbqa.kg.ranking.gating import Tier
from kbqa.trajectory import ExecutedAction
from kbqa.tree import RewardedTree, ScoredRollout

_BINS = 20


def gate_means(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """RRCG's verdicts on the relations that were written; empty if none was gated.

    Returns:
        `rrcg_top1`: mean score of the most similar neighbouring relation;
        `rrcg_high`, `rrcg_medium`, `rrcg_low`: shares of the confidence tiers.
    """
    gated = [verdict for action in _actions(rollouts) for verdict in action.gated]
    if not gated:
        return {}
    tiers = Counter(verdict.tier for verdict in gated)
    return {
        "rrcg_top1": fmean(verdict.score for verdict in gated),
        **{f"rrcg_{tier}": tiers[tier] / len(gated) for tier in Tier},
    }


def relation_similarities(
    rollouts: Sequence[ScoredRollout], references: Mapping[str, Sequence[str]], encoder: Encoder
) -> list[float]:
    """For each relation that an agent selected, its similarity to the nearest relation of the reference.

    Args:
        references: by question id, the relations of its reference actions; questions without are
            left out.
    """
    pairs = [
        (relation, references[rollout.question.id])
        for rollout in rollouts
        if references.get(rollout.question.id)
        for relation in _selected([rollout])
    ]
    names = sorted({name for relation, reference in pairs for name in (relation, *reference)})
    if not names:
        return []
    rows = {name: row for row, name in enumerate(names)}
    vectors = encoder.encode(names)

    def similarity(relation: str, reference: Sequence[str]) -> float:
        if relation in reference:
            return 1.0
        cosines = vectors[[rows[name] for name in reference]] @ vectors[rows[relation]]
        return float(np.clip(cosines.max(), 0.0, 1.0))

    return [similarity(relation, reference) for relation, reference in pairs]


def histogram(values: Sequence[float]) -> list[int]:
    """Number of values in each twentieth of [0, 1]."""
    counts = Counter(min(int(value * _BINS), _BINS - 1) for value in values)
    return [counts[bin_] for bin_ in range(_BINS)]


def _selected(rollouts: Sequence[ScoredRollout]) -> list[str]:
    """The relations that actions were executed with: as the gate selected them, or as they were written."""
    selected: list[str] = []
    for action in _actions(rollouts):
        if action.gated:
            selected += [verdict.relation for verdict in action.gated if verdict.tier != Tier.LOW]
        elif "relation" in action.arguments:
            selected.append(action.arguments["relation"])
    return selected


def _actions(rollouts: Sequence[ScoredRollout]) -> list[ExecutedAction]:
    """All actions; those of a tree once, however many episodes share them."""
    turns = []
    for rollout in rollouts:
        if isinstance(rollout, RewardedTree):
            turns += [step.turn for step in rollout.tree.steps]
        else:
            turns += [turn for member in rollout.members for turn in member.trajectory.turns]
    return [action for turn in turns for action in turn.actions]

"""The part of a step's record that describes its rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from kbqa.curves import (
    episode_means,
    error_reward_points,
    gate_means,
    histogram,
    question_means,
    relation_similarities,
    tree_means,
)
from kbqa.kg.ranking.encoders import Encoder, NgramEncoder
from kbqa.trajectory import Question, ScoredRollout

_MOST_POINTS = 256  # questions of a step that are plotted one by one


class Curves:
    """The curves of a run, a step at a time.

    Args:
        questions: those that it trains on; their gold paths are the reference actions of KBQA-R1's
            relation similarity.
        encoder: by which relations are similar.
    """

    def __init__(self, questions: Iterable[Question], encoder: Encoder | None = None) -> None:
        self._references: Mapping[str, Sequence[str]] = {
            question.id: [hop.relation for hop in question.path] for question in questions if question.path
        }
        self._encoder = encoder or NgramEncoder()

    def of(self, rollouts: Sequence[ScoredRollout]) -> dict[str, Any]:
        """Fields of a step record for which its rollouts have data: see `kbqa.curves`."""
        questions = [rollout.members for rollout in rollouts]
        values: dict[str, Any] = {
            **episode_means([episode for episodes in questions for episode in episodes]),
            **question_means(questions),
            **tree_means(rollouts),
            **gate_means(rollouts),
        }
        if points := error_reward_points(questions):
            values["error_reward"] = points[:_MOST_POINTS]
        if similarities := relation_similarities(rollouts, self._references, self._encoder):
            values["relation_similarity"] = fmean(similarities)
            values["relation_similarity_bins"] = histogram(similarities)
        return values

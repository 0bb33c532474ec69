"""The part of a step's record that describes its rollouts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev
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
from kbqa.curves.episodes import component_means, total_reward
from kbqa.kg.ranking.encoders import Encoder, NgramEncoder
from kbqa.kg.retrieval import ACTIONS
from kbqa.trajectory import Question, RewardedTrajectory, Status, TrainingSample
from kbqa.tree import ScoredRollout

_MOST_POINTS = 256  # questions of a step that are plotted one by one
_AT_A_LIMIT = frozenset({Status.OUT_OF_TURNS, Status.OUT_OF_TOKENS, Status.TIMED_OUT})


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
        episodes = [episode for members in questions for episode in members]
        values: dict[str, Any] = {
            **episode_means(episodes),
            **distributions(episodes),
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


def distributions(episodes: Sequence[RewardedTrajectory]) -> dict[str, Any]:
    """How rewards, lengths and actions are distributed over the episodes of a step.

    Returns:
        `reward_spread`: standard deviation (`std`), `min` and `max` of an episode's total reward;
        `reward_components`: mean of each named part of the reward;
        `turn_rewards`: mean reward by turn, from "1", over the episodes that have this turn;
        `episode_tokens`: `p95` and `max` of the tokens that the policy wrote in an episode;
        `truncated`: share of episodes that ended at a limit of turns, tokens or time;
        `action_success`: share of calls that returned something, by action; `other` are all names that
        are no action's. Empty if there is no episode.
    """
    if not episodes:
        return {}
    rewards = [total_reward(episode) for episode in episodes]
    lengths = sorted(episode.trajectory.generated_tokens for episode in episodes)
    turns: defaultdict[str, list[float]] = defaultdict(list)
    calls: defaultdict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        for number, reward in enumerate(episode.turn_rewards, 1):
            turns[str(number)].append(reward)
        for action in episode.trajectory.actions:
            calls[action.name if action.name in ACTIONS else "other"].append(action.succeeded)
    return {
        "reward_spread": {"std": pstdev(rewards), "min": min(rewards), "max": max(rewards)},
        "reward_components": component_means(episodes),
        "turn_rewards": {turn: fmean(values) for turn, values in turns.items()},
        "episode_tokens": {"p95": lengths[math.ceil(0.95 * len(lengths)) - 1], "max": lengths[-1]},
        "truncated": fmean(episode.trajectory.status in _AT_A_LIMIT for episode in episodes),
        "action_success": {name: fmean(succeeded) for name, succeeded in calls.items()},
    }


def advantage_spread(questions: Iterable[Sequence[TrainingSample]]) -> float | None:
    """Standard deviation, over the samples of a step, of the mean advantage of a sample's tokens.

    Returns:
        None without any token that has an advantage.
    """
    means = [
        sum(sample.advantages) / tokens
        for samples in questions
        for sample in samples
        if (tokens := sum(sample.mask))
    ]
    return pstdev(means) if means else None

"""Metrics over the episodes of one question, as means over questions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from kbqa.curves.episodes import setbacks, total_reward
from kbqa.errors import QueryError
from kbqa.kg.actions import EXECUTE_SPARQL
from kbqa.kg.sparql.guard import check_query
from kbqa.trajectory import RewardedTrajectory, Trajectory
from kbqa.tree import RewardedTree, ScoredRollout

Episodes = Sequence[RewardedTrajectory]


def question_means(questions: Sequence[Episodes]) -> dict[str, float]:
    """Means over questions.

    Args:
        questions: the episodes of each question.

    Returns:
        `success`: share of questions with an episode of F1 1 (ISP-KGR, Figure 4b);
        `unique_queries`: number of distinct final queries of a question (KnowCoder-A1, Figure 4b).
        Empty if no question has an episode.
    """
    asked = [episodes for episodes in questions if episodes]
    if not asked:
        return {}
    return {
        "success": fmean(any(e.components["f1"] == 1.0 for e in episodes) for episodes in asked),
        "unique_queries": fmean(len(final_queries(episodes)) for episodes in asked),
    }


def tree_means(rollouts: Sequence[ScoredRollout]) -> dict[str, float]:
    """Means over all trees among `rollouts`; empty if there is none.

    Returns:
        `branches`: branches kept at a state (ISP-KGR's effective branches, Table 7 and Figure 4c);
        `pruned`: share of branches that were pruned (its pruning rate);
        `unexplored`: states of a tree that were not continued because of a cap or deadline.
    """
    trees = [rollout for rollout in rollouts if isinstance(rollout, RewardedTree) and rollout.tree.steps]
    if not trees:
        return {}
    kept = sum(len(rewarded.tree.steps) for rewarded in trees)
    return {
        "branches": kept / sum(len(rewarded.tree.states) for rewarded in trees),
        "pruned": 1 - kept / sum(rewarded.tree.sampled for rewarded in trees),
        "unexplored": fmean(len(rewarded.tree.leaves) - len(rewarded.tree.ends) for rewarded in trees),
    }


def error_reward_points(questions: Sequence[Episodes]) -> list[tuple[float, float]]:
    """Mean errors and empty results, and mean reward, of a question's episodes (KnowCoder-A1, Figure 5)."""
    return [
        (
            round(fmean(setbacks(episode.trajectory) for episode in episodes), 3),
            round(fmean(total_reward(episode) for episode in episodes), 3),
        )
        for episodes in questions
        if episodes
    ]


def final_queries(episodes: Episodes) -> set[str]:
    """The last query of each episode, whatever its layout; in a dialect without queries, the last action."""
    found = (_final_query(episode.trajectory) for episode in episodes)
    return {query for query in found if query is not None}


def _final_query(trajectory: Trajectory) -> str | None:
    actions = list(trajectory.actions)
    for action in reversed(actions):
        if action.name == EXECUTE_SPARQL and "query" in action.arguments:
            return _canonical(action.arguments["query"])
    if not actions:
        return None
    last = actions[-1]
    return f"{last.name} {sorted(last.arguments.items())}"


def _canonical(query: str) -> str:
    try:
        return check_query(query).canonical
    except QueryError:
        return query

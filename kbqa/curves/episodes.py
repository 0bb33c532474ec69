"""Metrics of episodes, regardless of their questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from kbqa.kg.actions import EXECUTE_SPARQL, ErrorCode, ErrorKind
from kbqa.trajectory import ExecutedAction, Group, RewardedTrajectory, Status, Trajectory

# Turns of which nothing could be executed.
_NOT_UNDERSTOOD = frozenset({Status.UNPARSABLE, Status.OUT_OF_TOKENS})
_INVALID = _NOT_UNDERSTOOD | {Status.ACTION_ERROR}
# Not the agent's fault.
_UNANSWERED = frozenset({ErrorKind.OVERLOADED, ErrorKind.BACKEND_UNAVAILABLE})


def episode_means(episodes: Sequence[RewardedTrajectory]) -> dict[str, float]:
    """Means over episodes.

    Returns:
        Every component of the reward (f1, em, hit, …), and
        `reward`: turn rewards and outcome;
        `turns`, `generated_tokens`: per episode;
        `answered`: share of episodes;
        `invalid_actions`: share of turns that could not be parsed or whose action failed;
        `invalid_calls`: per episode (KnowCoder-A1, Figure 3d), see `invalid_calls`;
        `direct`, `recovered`, `incorrect`: shares of episodes (KnowCoder-A1, Figure 4a) that hit a gold
        answer without an error or empty result, that hit one after an error or empty result, and that
        do not hit any;
        `executability`: share of all queries that were executed without an error (Learning-to-Refine,
        section 4.5); left out if there are no queries. Empty if there is no episode.
    """
    if not episodes:
        return {}
    turns = [turn for episode in episodes for turn in episode.trajectory.turns]
    hits = [_hits(episode) for episode in episodes]
    stumbled = [setbacks(episode.trajectory) > 0 for episode in episodes]
    return {
        **component_means(episodes),
        "reward": fmean(total_reward(episode) for episode in episodes),
        "turns": len(turns) / len(episodes),
        "generated_tokens": fmean(episode.trajectory.generated_tokens for episode in episodes),
        "answered": fmean(episode.trajectory.status is Status.ANSWERED for episode in episodes),
        "invalid_actions": fmean(turn.status in _INVALID for turn in turns) if turns else 0.0,
        "invalid_calls": fmean(invalid_calls(episode.trajectory) for episode in episodes),
        "direct": fmean(hit and not bad for hit, bad in zip(hits, stumbled, strict=True)),
        "recovered": fmean(hit and bad for hit, bad in zip(hits, stumbled, strict=True)),
        "incorrect": fmean(not hit for hit in hits),
        **_executability(episodes),
    }


def component_means(episodes: Iterable[RewardedTrajectory]) -> dict[str, float]:
    """Mean of each component of the reward."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for name, value in episode.components.items():
            values[name].append(value)
    return {name: fmean(column) for name, column in values.items()}


def f1_by(groups: Iterable[Group], kinds: Mapping[str, str]) -> dict[str, float]:
    """Mean F1 of each kind of question.

    Args:
        kinds: by question id; questions without a kind, or with an empty one, are left out.
    """
    values: defaultdict[str, list[float]] = defaultdict(list)
    for group in groups:
        kind = kinds.get(group.question.id)
        if kind:
            values[kind].extend(member.components["f1"] for member in group.members)
    return {kind: fmean(column) for kind, column in sorted(values.items())}


def total_reward(episode: RewardedTrajectory) -> float:
    return sum(episode.turn_rewards) + episode.outcome


def invalid_calls(trajectory: Trajectory) -> int:
    """Number of turns that could not be parsed, plus actions that failed other than by an empty result."""
    misread = sum(turn.status in _NOT_UNDERSTOOD for turn in trajectory.turns)
    return misread + sum(_is_invalid(action) for action in trajectory.actions)


def setbacks(trajectory: Trajectory) -> int:
    """Number of errors and empty results: turns that could not be parsed, plus actions without success."""
    misread = sum(turn.status in _NOT_UNDERSTOOD for turn in trajectory.turns)
    return misread + sum(not action.succeeded for action in trajectory.actions)


def _is_invalid(action: ExecutedAction) -> bool:
    return action.code not in (None, ErrorCode.NO_RESULTS) and action.kind not in _UNANSWERED


def _hits(episode: RewardedTrajectory) -> bool:
    return episode.components.get("hit", episode.components["f1"]) > 0


def _executability(episodes: Iterable[RewardedTrajectory]) -> dict[str, float]:
    """The share over all queries, as in the paper; the reward's component is a mean over episodes."""
    executed = [
        action.code is None
        for episode in episodes
        for action in episode.trajectory.actions
        if action.name == EXECUTE_SPARQL
    ]
    return {"executability": fmean(executed)} if executed else {}

"""The reward port, and the rewards that a recipe may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kbqa.answers import em_set, f1, hit_any
from kbqa.gold import Comparison, Names, Verdict, compare
from kbqa.kg.actions import GraphTools
from kbqa.parts import Parts
from kbqa.trajectory import Question, RewardedTrajectory, Trajectory
from kbqa.tree import RewardedTree, Step, Tree


class Judge(Protocol):
    """See `kbqa.judges`; declared here, because rewards and judges do not import each other."""

    def verdict(
        self,
        question: str,
        gold: Sequence[str],
        answers: Sequence[str],
        names: Names,
    ) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class Instruments:
    """What a reward may use: the graph for distances, a judge for answers in words."""

    tools: GraphTools
    judge: Judge


class Reward(Protocol):
    """Scores one trajectory against the gold answers of its question."""

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        """Score a trajectory.

        Raises:
            JudgeUnavailableError: the judge gave no verdict.
            GraphNotFoundError, GraphUnavailableError: the graph could not be asked.
        """
        ...


@runtime_checkable
class TreeReward(Reward, Protocol):
    """A reward that also scores the steps of a tree."""

    def score_tree(self, id_: str, question: Question, tree: Tree, instruments: Instruments) -> RewardedTree:
        """Score each step of a tree; raises as `score`.

        Args:
            id_: id of the rewarded tree.
        """
        ...


REWARDS: Parts[Reward] = Parts("rewards")


def answers_to(question: Question, end: Trajectory | Step) -> Comparison:
    """The answers of an episode, or of a tree's step, beside the gold answers that they come nearest to."""
    return compare(question, end.answers, end.answer_ids)


def measures(question: Question, trajectory: Trajectory) -> dict[str, float]:
    """Components that every reward reports: f1, em (set equality) and hit (any)."""
    predicted, gold = answers_to(question, trajectory)
    return {
        "f1": f1(predicted, gold),
        "em": float(em_set(predicted, gold)),
        "hit": float(hit_any(predicted, gold)),
    }

"""ISP-KGR's reward: a sum for each step (section 4.3.2), as Algorithm 2 computes it (F.9).

r_i = w1 R_format + w2 R_progress + w3 R_outcome
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from kbqa.answers import f1
from kbqa.rewards.base import REWARDS, Instruments, answers_to, measures
from kbqa.rewards.progress import Command, MeasuredStep, measure
from kbqa.trajectory import Question, RewardedTrajectory, Trajectory
from kbqa.tree import RewardedTree, Tree

# Released code: from this F1 on, a query's result counts as the answers.
_GOOD_F1 = 0.9
# Scores that differ by less are equal but for rounding, such as 0.5 + 0.5 * F1 and a distance, both 2/3.
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class StepReward:
    """The three parts of a step's reward, before weighting."""

    format: float
    progress: float
    outcome: float


@REWARDS.register("isp_kgr")
@dataclass(frozen=True, slots=True)
class IspKgrReward:
    """If all answers are found, a SPARQL step that advances earns 1.0, a node or the answer 0.4.

    The rewards of steps contain the outcome, so the outcome of the trajectory itself is 0.

    Attributes:
        variant: `algorithm` is Algorithm 2. In the paper's main `text`, a bad format is 0, not -1, the
            outcome always counts, and a query has to come nearer than the latest node. The `released`
            code first rates a query's result by its F1, and lets a query advance only right after a
            node, or with an F1 of 0.9.
        max_distance: D; entities farther apart count as unconnected.
    """

    w_format: float = 0.1
    w_progress: float = 0.6
    w_outcome: float = 0.3
    variant: Literal["algorithm", "text", "released"] = "algorithm"
    max_distance: int = 3

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        measured = measure(question, trajectory.turns, instruments, self.max_distance)
        components = measures(question, trajectory)
        outcomes = [components["f1"]] * len(trajectory.turns)
        rewards = self.step_rewards(measured.steps, outcomes, measured.known)
        components["progress"] = fmean(reward.progress for reward in rewards) if rewards else 0.0
        return RewardedTrajectory(trajectory, tuple(map(self._total, rewards)), 0.0, components)

    def score_tree(self, id_: str, question: Question, tree: Tree, instruments: Instruments) -> RewardedTree:
        """The outcome of a step is the best F1 of the episodes that pass through it."""
        measured = measure(question, [step.turn for step in tree.steps], instruments, self.max_distance)
        outcomes = [0.0] * len(tree.steps)
        for end in tree.ends:
            reached = f1(*answers_to(question, tree.steps[end]))
            for index in tree.path(end):
                outcomes[index] = max(outcomes[index], reached)
        rewards: dict[int, StepReward] = {}
        for leaf in tree.leaves:
            path = tree.path(leaf)
            steps, through = [measured.steps[i] for i in path], [outcomes[i] for i in path]
            rewards |= zip(path, self.step_rewards(steps, through, measured.known), strict=True)
        ordered = [rewards[index] for index in range(len(tree.steps))]
        return RewardedTree(
            id_,
            question,
            tree,
            tuple(map(self._total, ordered)),
            tuple(
                {} if step.status is None else measures(question, tree.trajectory(index))
                for index, step in enumerate(tree.steps)
            ),
        )

    def step_rewards(
        self, steps: Sequence[MeasuredStep], outcomes: Sequence[float], known: Mapping[str, float]
    ) -> list[StepReward]:
        """Algorithm 2.

        Args:
            steps: steps of one episode, in order.
            outcomes: the final F1 for each step.
            known: DIST of each topic entity.
        """
        rewards: list[StepReward] = []
        visited: set[str] = set()  # line 1
        previous, after_node = 0.0, False
        scores = dict(known)  # line 2, S_map
        for step, outcome in zip(steps, outcomes, strict=True):
            format_ = 1.0 if step.well_formed else self._bad_format  # line 6
            current = 0.0
            if step.command is Command.ANSWER:
                progress = 0.0
            elif step.command is Command.NODE:
                progress = 0.0 if step.subject in scores else -1.0
                current = scores.get(step.subject, 0.0)
            elif step.score is None or step.subject in visited:
                progress = -1.0
            else:
                visited.add(step.subject)
                current = self._score(step.score, step.f1)
                for variable in step.variables:
                    scores[variable] = max(current, scores.get(variable, 0.0))
                progress = float(self._advances(step, current, previous, after_node))
            valid = (format_ >= 0 and progress >= 0) or self.variant == "text"
            rewards.append(StepReward(format_, progress, outcome if valid else 0.0))
            if progress >= 0 and step.command in self._remembered:  # line 26
                previous = current
            after_node = step.command is Command.NODE and progress >= 0
        return rewards

    @property
    def _bad_format(self) -> float:
        return 0.0 if self.variant == "text" else -1.0

    @property
    def _remembered(self) -> tuple[Command, ...]:
        """Commands whose score the next query has to surpass."""
        return (Command.NODE,) if self.variant == "text" else (Command.NODE, Command.SPARQL)

    def _score(self, distance: float, found_f1: float) -> float:
        if self.variant != "released" or found_f1 == 0:
            return distance
        return 1.0 if _is_good(found_f1) else 0.5 + 0.5 * found_f1

    def _advances(self, step: MeasuredStep, current: float, previous: float, after_node: bool) -> bool:
        if step.counts:
            return current == 1.0
        if self.variant == "released" and not after_node:
            return _is_good(step.f1)
        return current - previous > _TIE

    def _total(self, reward: StepReward) -> float:
        return (
            self.w_format * reward.format
            + self.w_progress * reward.progress
            + self.w_outcome * reward.outcome
        )


def _is_good(found_f1: float) -> bool:
    return found_f1 > _GOOD_F1 - _TIE

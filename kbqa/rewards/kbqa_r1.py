"""KBQA-R1's reward (section IV-C1): F1, plus the format if F1 is above 0.

R = w_F1 F1 + w_format 1[F1 > 0] 1[format]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from kbqa.rewards.base import REWARDS, Instruments, measures
from kbqa.trajectory import Question, RewardedTrajectory, Status, Trajectory, Turn


@REWARDS.register("kbqa_r1")
@dataclass(frozen=True, slots=True)
class KbqaR1Reward:
    """Answers are compared as a set; the format holds if all turns are well formed and the last one answers.

    Attributes:
        partial_format: share of w_format for a trajectory whose format does not hold, times the share of
            its tags that are paired; like the format itself, only with an F1 above 0 (the released code:
            0.3; the paper: nothing).
        timeouts_score_nothing: a trajectory with a query timeout earns 0 in total (released code).
    """

    w_f1: float = 1.0
    w_format: float = 0.1
    partial_format: float = 0.0
    timeouts_score_nothing: bool = False

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        measured = measures(question, trajectory)
        turns = trajectory.turns
        formatted = all(turn.well_formed for turn in turns) and trajectory.status is Status.ANSWERED
        reward = self.w_f1 * measured["f1"]
        if measured["f1"] > 0:
            reward += self.w_format * (1.0 if formatted else self.partial_format * _paired_tags(turns))
        timed_out = any(action.kind == "query_timeout" for action in trajectory.actions)
        if self.timeouts_score_nothing and timed_out:
            reward = 0.0
        components = {**measured, "format": float(formatted)}
        return RewardedTrajectory(trajectory, (0.0,) * len(turns), reward, components)


def _paired_tags(turns: Sequence[Turn]) -> float:
    """Mean over tags: 1 if as many close as open, 0.5 if not, 0.2 if they only open or only close, else 0."""
    written = "".join(turn.text for turn in turns)
    whole = written + "".join(turn.observation for turn in turns)
    texts = {"think": written, "action": written, "information": whole, "answer": written}
    return fmean(_pairing(text.count(f"<{tag}>"), text.count(f"</{tag}>")) for tag, text in texts.items())


def _pairing(opened: int, closed: int) -> float:
    if opened and closed:
        return 1.0 if opened == closed else 0.5
    return 0.2 if opened or closed else 0.0

"""KG-R1's rewards: a sum for each turn (Eq. 1) and one for the trajectory (Eq. 2).

r_t = w_fmt v_fmt(m_t) + w_kg v_kg(a_t, o_t+1) + w_ans v_ans(m_T)
R   = w_F1 F1(predicted, gold) + w_ret v_ret
"""

from __future__ import annotations

from dataclasses import dataclass

from kbqa.answers import answer_set
from kbqa.gold import gold_names
from kbqa.rewards.base import REWARDS, Instruments, measures
from kbqa.trajectory import Question, RewardedTrajectory, Status, Trajectory, Turn


@REWARDS.register("kg_r1")
@dataclass(frozen=True, slots=True)
class KgR1Reward:
    """KG-R1's rewards; the weights are those of table 8.

    Attributes:
        unique_queries: a query that repeats an earlier one of the trajectory earns no w_kg
            (the released code; the paper does not say).
    """

    w_format: float = 0.5
    w_query: float = 0.5
    w_answer: float = 0.5
    w_f1: float = 1.0
    w_retrieval: float = 1.0
    unique_queries: bool = False

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        asked: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        turn_rewards = tuple(self._turn(turn, trajectory, asked) for turn in trajectory.turns)
        measured = measures(question, trajectory)
        retrieved = retrieval(question, trajectory)
        return RewardedTrajectory(
            trajectory,
            turn_rewards,
            self.w_f1 * measured["f1"] + self.w_retrieval * retrieved,
            {**measured, "retrieval": retrieved},
        )

    def _turn(
        self, turn: Turn, trajectory: Trajectory, asked: set[tuple[str, tuple[tuple[str, str], ...]]]
    ) -> float:
        reward = self.w_format * turn.well_formed
        for action in turn.actions:
            query = (action.name, tuple(sorted(action.arguments.items())))
            if action.succeeded and not (self.unique_queries and query in asked):
                reward += self.w_query
            asked.add(query)
        if turn.status is Status.ANSWERED:
            reward += self.w_answer * bool(trajectory.answers)
        return reward


def retrieval(question: Question, trajectory: Trajectory) -> float:
    """v_ret: 1 if any gold entity appears in what the trajectory retrieved, else 0."""
    seen = answer_set(name for action in trajectory.actions for name in (*action.labels, *action.items))
    return float(not seen.isdisjoint(gold_names(question)))

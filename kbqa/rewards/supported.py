"""KG-R1's reward with a term of our own: the share of the answers that the graph supports.

R = w_F1 F1(predicted, gold) + w_ret v_ret + w_sup v_sup

F1 and v_ret compare with gold answers, so that a guessed answer earns as much as one that was found.
v_sup is the share of the answers that are supported (`kbqa.evidence`), gold or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kbqa.errors import GraphUnavailableError
from kbqa.evidence import Claims, confirmed, supported_share
from kbqa.rewards.base import REWARDS, Instruments
from kbqa.rewards.kg_r1 import KgR1Reward
from kbqa.trajectory import Question, RewardedTrajectory, Trajectory


@REWARDS.register("kg_r1_supported")
@dataclass(frozen=True, slots=True)
class SupportedKgR1Reward(KgR1Reward):
    """A reward of its own, so that the paper's recipes and their digests do not change.

    Attributes:
        w_supported: weight of v_sup; at 0 the graph is not asked. A wrong answer may be supported, too:
            keep the weight small compared with w_f1.
    """

    w_supported: float = 0.0

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        # Not `super()`, which does not work in a dataclass with slots.
        scored = KgR1Reward.score(self, question, trajectory, instruments)
        if not self.w_supported:
            return scored
        supported = support(question, trajectory, instruments)
        return replace(
            scored,
            outcome=scored.outcome + self.w_supported * supported,
            components={**scored.components, "supported": supported},
        )


def support(question: Question, trajectory: Trajectory, instruments: Instruments) -> float:
    """v_sup: the share of the answers with evidence that the graph confirms; 0 without an answer.

    Raises:
        GraphNotFoundError, GraphUnavailableError: the graph could not be asked.
    """
    claims = Claims(instruments.tools, question.kg, question.graph)
    answers = confirmed([trajectory], frozenset(question.topic_entities), claims)
    if claims.unreached is not None:
        raise GraphUnavailableError(f"{question.kg}: {claims.unreached}")
    return supported_share(answers) or 0.0

"""KnowCoder-A1's reward (section 4.3.2, Eq. 9 and 10), with the optional penalties of its analysis.

R = min(R_fmt + F_beta, 1)

Table 3 compares it with a reward that is 1 for any right answer, which the paper calls exact match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kbqa.answers import f_beta, hit_any, rhits1
from kbqa.kg.actions import ErrorKind
from kbqa.kg.naming import RELATION_NAMESPACE, name_of
from kbqa.rewards.base import REWARDS, Instruments, answers_to, measures
from kbqa.trajectory import Question, RewardedTrajectory, Trajectory

_BOX = re.compile(r"\\boxed\{")
# Relations and types of a query, Freebase's or those of a delimited file; entities have ids such as m.0abc.
_SCHEMA_TERM = re.compile(rf"\bns:((?![mg]\.)[a-z][\w-]*(?:\.[\w-]+)+)|<{RELATION_NAMESPACE}([^>\s]+)>")


@REWARDS.register("knowcoder_a1")
@dataclass(frozen=True, slots=True)
class KnowCoderA1Reward:
    """KnowCoder-A1's reward; phase 1 has beta 0.5, phase 2 beta 1.

    Attributes:
        measure: how answers are scored; `hit` is that of table 3.
        format: R_fmt, for a final turn with an answer box.
        unseen_penalty: for each tool call with a relation or type that no earlier observation showed.
        timeout_penalty: for each query that timed out.
        penalty_cap: maximum of all penalties together.
    """

    beta: float = 0.5
    measure: Literal["f_beta", "hit"] = "f_beta"
    format: float = 0.1
    unseen_penalty: float = 0.0
    timeout_penalty: float = 0.0
    penalty_cap: float = 0.5

    def score(
        self, question: Question, trajectory: Trajectory, instruments: Instruments
    ) -> RewardedTrajectory:
        boxed = bool(trajectory.turns) and _BOX.search(trajectory.turns[-1].text) is not None
        answers, gold = answers_to(question, trajectory)
        right = float(hit_any(answers, gold)) if self.measure == "hit" else f_beta(answers, gold, self.beta)
        reward = min(self.format * boxed + right, 1.0)
        reward -= self._penalties(trajectory)
        components = {
            **measures(question, trajectory),
            "rhits1": rhits1(answers, gold),
            "boxed": float(boxed),
        }
        return RewardedTrajectory(trajectory, (0.0,) * len(trajectory.turns), reward, components)

    def _penalties(self, trajectory: Trajectory) -> float:
        if not self.unseen_penalty and not self.timeout_penalty:
            return 0.0
        penalty, shown = 0.0, ""
        for turn in trajectory.turns:
            for action in turn.actions:
                terms = map(_name, _SCHEMA_TERM.finditer(" ".join(action.arguments.values())))
                unseen = any(term != "type.object.type" and term not in shown for term in terms)
                timed_out = action.kind == ErrorKind.QUERY_TIMEOUT
                penalty += self.unseen_penalty * unseen + self.timeout_penalty * timed_out
            shown += turn.observation
        return min(penalty, self.penalty_cap)


def _name(term: re.Match[str]) -> str:
    """A relation or type as an observation shows it."""
    return term[1] or name_of(RELATION_NAMESPACE + term[2])

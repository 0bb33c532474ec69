"""What a recipe says of episodes: how they are played, and what they are worth."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kbqa.advantages import Advantage, AdvantageKind, Baseline, Deviation
from kbqa.environment import Budget
from kbqa.judges import JUDGES, Judge
from kbqa.policies.base import Truncation
from kbqa.protocols import PROTOCOLS, AgentProtocol
from kbqa.recipes.section import PartSection, Positive, Section
from kbqa.rewards import REWARDS, Reward
from kbqa.rollouts import Branching, Pruning


class ProtocolSection(PartSection[AgentProtocol]):
    parts = PROTOCOLS


class SamplingSection(Section):
    """How tokens are drawn; see `kbqa.policies.base.Truncation`. At temperature 0 nothing is."""

    temperature: Annotated[float, Field(ge=0, le=2)]
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Positive | None = None

    def truncation(self) -> Truncation:
        return Truncation(self.top_p, self.top_k)


class EvaluationSection(SamplingSection):
    """How the one episode of a question is sampled when a policy is evaluated."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0


class EpisodeSection(SamplingSection):
    """What every kind of rollout says of its episodes."""

    max_turns: Positive
    max_tokens: Positive
    max_turn_tokens: Positive
    max_observation_tokens: Positive

    def budget(self) -> Budget:
        return Budget(self.max_turns, self.max_tokens, self.max_turn_tokens, self.max_observation_tokens)


class LinearSection(EpisodeSection):
    """N independent episodes of a question."""

    kind: Literal["linear"]
    n: Positive

    @property
    def width(self) -> int:
        """Completions that one state is continued by at a time."""
        return self.n


class TreeSection(EpisodeSection):
    """A tree of episodes, as deep as `max_turns`; see `kbqa.rollouts.Branching`."""

    kind: Literal["tree"]
    k: Positive
    max_active: Positive
    max_nodes: Positive
    pruning: Pruning = "parent"

    @property
    def width(self) -> int:
        """As that of a linear rollout."""
        return self.k

    def branching(self) -> Branching:
        return Branching(self.k, self.max_active, self.max_nodes, self.pruning)


class RewardSection(PartSection[Reward]):
    parts = REWARDS


class JudgeSection(PartSection[Judge]):
    parts = JUDGES

    name: str = "matching"


class AdvantageSection(Section):
    """See `kbqa.advantages`."""

    kind: AdvantageKind
    lam: float = 1.0
    deviation: Deviation = "population"
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    bound: Annotated[float, Field(gt=0)] | None = None
    turn_weight: float = 0.5
    outcome_weight: float = 1.0

    def build(self) -> Advantage:
        return Advantage(
            self.kind,
            self.lam,
            Baseline(self.deviation, self.epsilon, self.bound),
            self.turn_weight,
            self.outcome_weight,
        )

"""Recipe sections for episodes: how they are played, and how they are rewarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from kbqa.advantages import (
    ADVANTAGES,
    Advantage,
    AdvantageKind,
    Baseline,
    Credit,
    Deviation,
    WithoutSpread,
)
from kbqa.environment import Budget
from kbqa.judges import JUDGES, Judge
from kbqa.kg.terms import GraphTerms
from kbqa.policies.base import Truncation
from kbqa.protocols import PROTOCOLS, AgentProtocol
from kbqa.recipes.section import PartSection, Positive, Section
from kbqa.rewards import REWARDS, Reward
from kbqa.rollouts import KINDS, Agent, Beyond, Branching, Pruning, linear_rollout, tree_rollout
from kbqa.trajectory import Question, Trajectory
from kbqa.tree import Tree

Played = list[Trajectory] | Tree


class ProtocolSection(PartSection[AgentProtocol]):
    parts = PROTOCOLS


class SamplingSection(Section):
    """How tokens are sampled; see `kbqa.policies.base.Truncation`. Temperature 0 is greedy."""

    temperature: Annotated[float, Field(ge=0, le=2)]
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Positive | None = None

    def truncation(self) -> Truncation:
        return Truncation(self.top_p, self.top_k)


class EvaluationSection(SamplingSection):
    """How a policy answers a question, in evaluation and for users, with one episode.

    Attributes:
        beam: for a policy that chooses: how many episodes are searched side by side, of which one answers
            (`kbqa.rollouts.beam`). The validation of a run is not searched.
    """

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    beam: Annotated[int, Field(ge=1, le=16)] = 1


class EpisodeSection(SamplingSection):
    """Options common to all kinds of rollouts."""

    max_turns: Positive
    max_tokens: Positive
    max_turn_tokens: Positive
    max_observation_tokens: Positive

    def budget(self) -> Budget:
        return Budget(self.max_turns, self.max_tokens, self.max_turn_tokens, self.max_observation_tokens)


class LinearSection(EpisodeSection):
    """N independent episodes of a question.

    Attributes:
        screened: whether a question is asked once before, and not N times if that episode answers it
            rightly: a group of the one episode, which teaches nothing, then stands for it. A policy that
            already answers most questions so meets more of the others in the same time. The episode is no
            member of a group of N, so that the group remains a fair sample.
    """

    kind: Literal["linear"]
    n: Positive
    screened: bool = False

    @property
    def width(self) -> int:
        """Number of completions sampled from one state at a time."""
        return self.n

    def play(self, agent: Agent, question: Question, n: int, temperature: float, **until: Any) -> Played:
        """As `kbqa.rollouts.Rollout.play`; the argument `n` replaces the section's own."""
        return linear_rollout(agent, question, n, temperature, **until)


class TreeSection(EpisodeSection):
    """A tree of episodes, as deep as `max_turns`; see `kbqa.rollouts.Branching`."""

    kind: Literal["tree"]
    k: Positive
    max_active: Positive
    max_nodes: Positive
    pruning: Pruning = "parent"
    beyond: Beyond = "stop"
    filter_errors: bool = False

    @property
    def width(self) -> int:
        """As `LinearSection.width`."""
        return self.k

    def branching(self) -> Branching:
        return Branching(
            self.k, self.max_active, self.max_nodes, self.pruning, self.beyond, self.filter_errors
        )

    def play(self, agent: Agent, question: Question, n: int, temperature: float, **until: Any) -> Played:
        """As `kbqa.rollouts.Rollout.play`; the argument `n` replaces `k`."""
        return tree_rollout(agent, question, replace(self.branching(), k=n), temperature, **until)


class AddedRolloutSection(EpisodeSection):
    """A rollout kind from another distribution, with its options; see `kbqa.rollouts.Rollout`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str
    n: Positive = 1

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        kind = values.get("kind")
        if kind not in KINDS.names():
            raise ValueError(_no_such_kind(kind, ("linear", "tree", *KINDS.names())))
        options = {key: value for key, value in values.items() if key not in cls.model_fields}
        return {**values, **KINDS.resolve(kind, options)}

    @property
    def width(self) -> int:
        """As `LinearSection.width`."""
        return self.n

    def play(self, agent: Agent, question: Question, n: int, temperature: float, **until: Any) -> Played:
        """As `kbqa.rollouts.Rollout.play`."""
        kind = KINDS.build(self.kind, self.model_extra or {})
        return kind.play(agent, question, n, temperature, **until)


class GraphSection(Section):
    """How the graph is asked; see `kbqa.kg.terms.GraphTerms`.

    Attributes:
        query_timeout_s: seconds that a query may run. A kg_server allows at most its
            `query_deadline_max_s`; None takes its default.
        encoder: name of the model by which relations and types have to be compared; None accepts any.
    """

    query_timeout_s: Annotated[float, Field(gt=0, le=3600)] | None = None
    encoder: Annotated[str, Field(min_length=1)] | None = None

    def terms(self) -> GraphTerms:
        return GraphTerms(self.query_timeout_s, self.encoder)


class RewardSection(PartSection[Reward]):
    parts = REWARDS


class JudgeSection(PartSection[Judge]):
    parts = JUDGES

    name: str = "matching"


class AddedAdvantageSection(Section):
    """An advantage from another distribution, with its options; see `kbqa.advantages.Credit`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: str

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        kind = values.get("kind")
        if kind not in ADVANTAGES.names():
            raise ValueError(_no_such_kind(kind, (*get_args(AdvantageKind), *ADVANTAGES.names())))
        # Options inherited from a recipe with a built-in kind mean nothing to this one.
        ours = AdvantageSection.model_fields.keys() - ADVANTAGES.options(kind)
        options = {key: value for key, value in values.items() if key not in ours}
        return {"kind": kind, **ADVANTAGES.resolve(kind, options)}

    def build(self) -> Credit:
        return ADVANTAGES.build(self.kind, self.model_extra or {})


class AdvantageSection(Section):
    """See `kbqa.advantages`."""

    kind: AdvantageKind
    lam: float = 1.0
    deviation: Deviation = "population"
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    bound: Annotated[float, Field(gt=0)] | None = None
    turn_weight: float = 0.5
    outcome_weight: float = 1.0
    without_spread: WithoutSpread = "dropped"

    def build(self) -> Advantage:
        return Advantage(
            self.kind,
            self.lam,
            Baseline(self.deviation, self.epsilon, self.bound),
            self.turn_weight,
            self.outcome_weight,
            self.without_spread,
        )


def _no_such_kind(kind: object, known: Sequence[str]) -> str:
    return f'kind: unknown name "{kind}" (known: {", ".join(known)})'


def _kind_of(values: Any) -> object:
    return values.get("kind") if isinstance(values, dict) else getattr(values, "kind", None)


def _advantage_of(values: Any) -> str:
    return "ours" if _kind_of(values) in get_args(AdvantageKind) else "added"


def _rollout_of(values: Any) -> str:
    kind = _kind_of(values)
    return str(kind) if kind in ("linear", "tree") else "added"


AnyAdvantageSection = Annotated[
    Annotated[AdvantageSection, Tag("ours")] | Annotated[AddedAdvantageSection, Tag("added")],
    Discriminator(_advantage_of),
]
AnyRolloutSection = Annotated[
    Annotated[LinearSection, Tag("linear")]
    | Annotated[TreeSection, Tag("tree")]
    | Annotated[AddedRolloutSection, Tag("added")],
    Discriminator(_rollout_of),
]

"""What a recipe says: one protocol, one rollout kind, one reward sum, one advantage, and numbers.

Reading one must not load torch, since services and the command line do it at their start:
what is configured is imported where it is built.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kbqa.advantages import Advantage, AdvantageKind, Baseline, Deviation
from kbqa.environment import Budget
from kbqa.judges import JUDGES, Judge
from kbqa.parts import Parts
from kbqa.protocols import PROTOCOLS, AgentProtocol
from kbqa.rewards import REWARDS, Reward, TreeReward
from kbqa.rollouts import Branching, Pruning

if TYPE_CHECKING:
    from kbqa.training.copying import WarmUpConfig
    from kbqa.training.grpo import GrpoConfig
    from kbqa.training.sft import SftConfig
    from kbqa.training.small_policy import SmallPolicyConfig

T = TypeVar("T")
Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]


class Section(BaseModel):
    """Part of a recipe; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PartSection(Section, Generic[T]):
    """A named part with its options, which are the fields of the part itself."""

    model_config = ConfigDict(extra="allow", frozen=True)
    parts: ClassVar[Parts[Any]]

    name: str

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            return values
        options = {key: value for key, value in values.items() if key != "name"}
        return {"name": values["name"], **cls.parts.resolve(values["name"], options)}

    def build(self) -> T:
        part: T = self.parts.build(self.name, self.model_extra or {})
        return part


class ProtocolSection(PartSection[AgentProtocol]):
    parts = PROTOCOLS


class EpisodeSection(Section):
    """What every kind of rollout says of its episodes."""

    temperature: Annotated[float, Field(ge=0, le=2)]
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


class OptimisationSection(Section):
    learning_rate: Rate
    weight_decay: Annotated[float, Field(ge=0)]
    clip_norm: Annotated[float, Field(gt=0)]
    token_budget: Positive
    clip_low: Rate
    clip_high: Annotated[float, Field(gt=0)]
    kl_coefficient: Annotated[float, Field(ge=0)]
    entropy_coefficient: float = 0.0
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    aggregation: Literal["token_sum", "token_sum_norm", "token_mean", "sample_mean"]
    horizon: Positive = 4096

    def build(self) -> GrpoConfig:
        from kbqa.objectives import SurrogateConfig
        from kbqa.training.grpo import GrpoConfig

        return GrpoConfig(
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            token_budget=self.token_budget,
            surrogate=SurrogateConfig(
                self.clip_low,
                self.clip_high,
                self.kl_coefficient,
                self.aggregation,
                self.dual_clip,
                self.entropy_coefficient,
                self.horizon,
            ),
        )


class ScheduleSection(Section):
    """How a run is paced.

    Attributes:
        questions_per_step: groups that one optimiser step consumes.
        max_in_flight: rollout requests that are out at a time.
        max_staleness: a group whose oldest turn was written that many versions before the
            current one still counts; an older one is dropped.
        request_deadline_s: an unanswered request is sent again after that, under its id.
        max_seconds: reinforcement learning ends after that; None leaves only `steps`.
        max_run_seconds: it ends when the whole run, cold start and all, has worked that long.
    """

    steps: Positive
    questions_per_step: Positive
    max_in_flight: Positive
    max_staleness: Annotated[int, Field(ge=0)]
    request_deadline_s: Annotated[float, Field(gt=0)]
    checkpoint_every: Positive
    validate_every: Positive
    max_seconds: float | None = None
    max_run_seconds: float | None = None


class WarmUpSection(Section):
    """The copying warm-up; it ends at `learned_loss`, after `steps` at the latest."""

    steps: Positive
    batch_tokens: Positive
    learning_rate: Rate
    learned_loss: Annotated[float, Field(gt=0)] = 0.4

    def build(self) -> WarmUpConfig:
        from kbqa.training.copying import WarmUpConfig

        return WarmUpConfig(**self.model_dump())


class SmallPolicySection(Section):
    """A transformer from nothing; see `kbqa.training.small_policy` and `kbqa.training.copying`."""

    vocabulary: Annotated[int, Field(ge=300)]
    layers: Positive
    width: Positive
    heads: Positive
    feed_forward: Positive
    max_length: Positive
    warm_up: WarmUpSection

    def build(self) -> SmallPolicyConfig:
        from kbqa.training.small_policy import SmallPolicyConfig

        return SmallPolicyConfig(**self.model_dump(exclude={"warm_up"}))


class ColdStartSection(Section):
    """SFT on demonstrations of gold programs.

    Attributes:
        demonstrations: at most that many.
        validate_every: steps between two looks at the validation F1; the best one wins.
        patience: looks without a new best after which the cold start ends.
    """

    demonstrations: Positive
    steps: Positive
    batch: Positive
    learning_rate: Rate
    token_budget: Positive
    validate_every: Positive
    patience: Positive
    max_seconds: float | None = None

    def build(self) -> SftConfig:
        from kbqa.training.sft import SftConfig

        return SftConfig(
            steps=self.steps,
            batch=self.batch,
            learning_rate=self.learning_rate,
            token_budget=self.token_budget,
        )


class Recipe(Section):
    """A paper as numbers.

    Attributes:
        base_model: the pretrained model to start from; None makes a small policy from nothing.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    base_model: str | None = None
    protocol: ProtocolSection
    rollout: Annotated[LinearSection | TreeSection, Field(discriminator="kind")]
    reward: RewardSection
    judge: JudgeSection = JudgeSection()
    advantage: AdvantageSection
    optimisation: OptimisationSection
    schedule: ScheduleSection
    small_policy: SmallPolicySection | None = None
    cold_start: ColdStartSection | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        is_tree = self.rollout.kind == "tree"
        if is_tree != (self.advantage.kind == "state"):
            raise ValueError(
                f"advantage.kind: {self.advantage.kind!r} does not go with rollout.kind "
                f"{self.rollout.kind!r}: trees need 'state', and nothing else does"
            )
        if is_tree and not isinstance(self.reward.build(), TreeReward):
            raise ValueError(f"reward.name: {self.reward.name!r} does not score the steps of a tree")
        return self

    def digest(self) -> str:
        """SHA-256 over all resolved values, hexadecimal."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

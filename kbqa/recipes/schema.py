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
from kbqa.policies.base import Truncation
from kbqa.protocols import PROTOCOLS, AgentProtocol
from kbqa.rewards import REWARDS, Reward, TreeReward
from kbqa.rollouts import Branching, Pruning
from kbqa.trajectory import Question

if TYPE_CHECKING:
    from kbqa.training.adapters import Adapter
    from kbqa.training.copying import WarmUpConfig
    from kbqa.training.grpo import GrpoConfig
    from kbqa.training.learning_rate import LearningRate
    from kbqa.training.sft import SftConfig
    from kbqa.training.small_policy import SmallPolicyConfig

T = TypeVar("T")
Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
Moment = Annotated[float, Field(ge=0, lt=1)]


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


class LoraSection(Section):
    """A low-rank adapter in place of whole weights; see `kbqa.training.adapters.Adapter`.

    Attributes:
        rank: one that vLLM can serve.
    """

    rank: Literal[8, 16, 32, 64, 128, 256, 320, 512] = 32
    alpha: Positive = 64
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    quantised: bool = False

    def build(self) -> Adapter:
        from kbqa.training.adapters import Adapter

        return Adapter(**self.model_dump())


class OptimisationSection(Section):
    """The objective, its optimiser, and what is done with one batch of rollouts.

    Attributes:
        decay, warm_up_steps, warm_up_share: of the learning rate over the steps of the schedule;
            see `kbqa.training.learning_rate`.
        betas: of AdamW.
        mini_batch_questions, mini_batch_samples, epochs, precision, gradient_checkpointing: see
            `kbqa.training.grpo.GrpoConfig`.
        lora: an adapter to be trained; None trains all weights.
    """

    learning_rate: Rate
    decay: Literal["constant", "cosine"] = "constant"
    warm_up_steps: Annotated[int, Field(ge=0)] = 0
    warm_up_share: Fraction = 0.0
    weight_decay: Annotated[float, Field(ge=0)]
    betas: tuple[Moment, Moment] = (0.9, 0.999)
    clip_norm: Annotated[float, Field(gt=0)]
    token_budget: Positive
    mini_batch_questions: Positive | None = None
    mini_batch_samples: Positive | None = None
    epochs: Positive = 1
    clip_low: Rate
    clip_high: Annotated[float, Field(gt=0)]
    kl_coefficient: Annotated[float, Field(ge=0)]
    entropy_coefficient: float = 0.0
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    importance_cap: Annotated[float, Field(gt=0)] | None = None
    aggregation: Literal["token_sum", "token_sum_norm", "token_mean", "sample_mean"]
    horizon: Positive = 4096
    precision: Literal["fp32", "bf16"] = "fp32"
    gradient_checkpointing: bool = False
    lora: LoraSection | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for one, other in (
            ("warm_up_steps", "warm_up_share"),
            ("mini_batch_questions", "mini_batch_samples"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"{one} and {other} say the same in two ways: set one of them")
        return self

    def rate(self) -> LearningRate:
        """The learning rate of each step."""
        from kbqa.training.learning_rate import LearningRate

        return LearningRate(self.learning_rate, self.decay, self.warm_up_steps, self.warm_up_share)

    def build(self, sampling: SamplingSection | None = None) -> GrpoConfig:
        """Args:
        sampling: how the rollouts are drawn; by default from the whole distribution.
        """
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
                self.importance_cap,
            ),
            betas=self.betas,
            # What was drawn greedily is scored under temperature 1.
            temperature=(sampling and sampling.temperature) or 1.0,
            truncation=Truncation() if sampling is None else sampling.truncation(),
            mini_batch_questions=self.mini_batch_questions,
            mini_batch_samples=self.mini_batch_samples,
            epochs=self.epochs,
            precision=self.precision,
            gradient_checkpointing=self.gradient_checkpointing,
            adapter=None if self.lora is None else self.lora.build(),
        )


class BestBySection(Section):
    """By what the best weights of a run are told; it ends with those, not with the last.

    Attributes:
        metric: a field of the records looked at, such as f1, em or reward.
        split: `validation` looks at each evaluation; `train` at the mean over the steps since the
            last checkpoint, whenever one is written.
    """

    metric: str = "f1"
    split: Literal["train", "validation"] = "validation"
    direction: Literal["max", "min"] = "max"


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
        keep_checkpoints: newest ones that are kept, beside that of the best weights.
        best_by: None ends with the last weights.
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
    keep_checkpoints: Positive = 2
    best_by: BestBySection | None = None

    @model_validator(mode="after")
    def _enough_in_flight(self) -> Self:
        if self.max_in_flight < self.questions_per_step:
            raise ValueError(
                f"max_in_flight: a step needs {self.questions_per_step} groups, so no step would ever be made"
            )
        return self


AlarmName = Literal["entropy", "no_spread", "logprob_gap", "kl"]


class GuardsSection(Section):
    """What a run is watched for; see `services.trainer.guards`. A bound that is None is not watched.

    Attributes:
        steps: an alarm is raised when its bound is broken in so many steps in a row.
        min_entropy: mean entropy of the policy's tokens, nats.
        max_no_spread: share of a step's questions that teach nothing, since all their returns are equal.
        max_logprob_gap: mean absolute difference between a token's log-probability in the engine
            that wrote it and in the trainer, nats.
        max_kl: mean estimate of the divergence from the reference, nats.
        max_not_finite: the run fails when loss or gradient were not finite in so many steps in a row.
        stop_on: alarms that end reinforcement learning, as its last step would.
        patience: evaluations without a new best after which it ends; needs `schedule.best_by`.
    """

    steps: Positive = 3
    min_entropy: Annotated[float, Field(ge=0)] | None = None
    max_no_spread: Fraction | None = None
    max_logprob_gap: Annotated[float, Field(ge=0)] | None = None
    max_kl: Annotated[float, Field(ge=0)] | None = None
    max_not_finite: Positive = 20
    stop_on: tuple[AlarmName, ...] = ()
    patience: Positive | None = None

    def bound(self, alarm: AlarmName) -> float | None:
        """Of the alarm; entropy has a lower one, the others an upper one."""
        return {
            "entropy": self.min_entropy,
            "no_spread": self.max_no_spread,
            "logprob_gap": self.max_logprob_gap,
            "kl": self.max_kl,
        }[alarm]

    @model_validator(mode="after")
    def _alarms_have_bounds(self) -> Self:
        for alarm in self.stop_on:
            if self.bound(alarm) is None:
                raise ValueError(f"stop_on: the alarm {alarm!r} has no bound, so it is never raised")
        return self


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


class QuestionsSection(Section):
    """Which questions of a data set suit a recipe.

    Attributes:
        max_answers: those with more gold answers are left out, of every split; a dialect whose
            answers are scalars has no use for them.
    """

    max_answers: Positive | None = None

    def suit(self, question: Question) -> bool:
        return self.max_answers is None or len(question.answers) <= self.max_answers


class ColdStartSection(Section):
    """SFT on demonstrations of gold programs.

    Attributes:
        demonstrations: at most that many.
        validate_every: steps between two looks at the validation F1; the best one wins.
        patience: looks without a new best after which the cold start ends.
        learned_loss, cool_down_steps: see `kbqa.training.sft.SftConfig`.
    """

    demonstrations: Positive
    steps: Positive
    batch: Positive
    learning_rate: Rate
    token_budget: Positive
    validate_every: Positive
    patience: Positive
    max_seconds: float | None = None
    learned_loss: Annotated[float, Field(gt=0)] | None = None
    cool_down_steps: Positive = 150

    def build(self) -> SftConfig:
        from kbqa.training.sft import SftConfig

        return SftConfig(
            steps=self.steps,
            batch=self.batch,
            learning_rate=self.learning_rate,
            token_budget=self.token_budget,
            learned_loss=self.learned_loss,
            cool_down_steps=self.cool_down_steps,
        )


class Recipe(Section):
    """A paper as numbers.

    Attributes:
        base_model: the pretrained model to start from; None makes a small policy from nothing.
        deterministic: the same seed gives the same numbers on the same machine, however a run was
            interrupted; completions are then computed one at a time, which is slow.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    base_model: str | None = None
    questions: QuestionsSection = QuestionsSection()
    protocol: ProtocolSection
    rollout: Annotated[LinearSection | TreeSection, Field(discriminator="kind")]
    evaluation: EvaluationSection = EvaluationSection()
    reward: RewardSection
    judge: JudgeSection = JudgeSection()
    advantage: AdvantageSection
    optimisation: OptimisationSection
    schedule: ScheduleSection
    guards: GuardsSection = GuardsSection()
    deterministic: bool = False
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
        if self.optimisation.lora is not None and (self.base_model is None or self.cold_start is not None):
            raise ValueError(
                "optimisation.lora: an adapter is served beside base_model, so there must be one, and a "
                "cold start, after which the base would be another, must not"
            )
        if self.guards.patience is not None and self.schedule.best_by is None:
            raise ValueError(
                "guards.patience: waits for a new best, and schedule.best_by says of what: set it"
            )
        schedule = self.schedule
        in_step = schedule.max_staleness == 0 and schedule.max_in_flight == schedule.questions_per_step
        if self.deterministic and not in_step:
            raise ValueError(
                "deterministic: what a step learns from must not hang on which worker was faster; set "
                f"schedule.max_staleness=0 and schedule.max_in_flight={schedule.questions_per_step}"
            )
        return self

    def digest(self) -> str:
        """SHA-256 over all resolved values, hexadecimal."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

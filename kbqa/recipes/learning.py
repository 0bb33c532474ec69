"""Recipe sections for reinforcement learning: the objective, the schedule and the guards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from kbqa.policies.base import Truncation
from kbqa.recipes.play import SamplingSection
from kbqa.recipes.section import Fraction, Moment, Positive, Rate, Section

if TYPE_CHECKING:
    from kbqa.training.adapters import Adapter
    from kbqa.training.grpo import GrpoConfig
    from kbqa.training.learning_rate import LearningRate


class LoraSection(Section):
    """A low-rank adapter in place of whole weights; see `kbqa.training.adapters.Adapter`.

    Attributes:
        rank: only ranks that vLLM can serve.
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
    """The objective, its optimiser, and how a batch of rollouts is used.

    Attributes:
        decay, warm_up_steps, warm_up_share: shape of the learning rate over the schedule's steps;
            see `kbqa.training.learning_rate`.
        betas: of AdamW.
        mini_batch_questions, mini_batch_samples, epochs, precision, gradient_checkpointing, compile: see
            `kbqa.training.grpo.GrpoConfig`.
        importance_cap: see `kbqa.objectives.SurrogateConfig`; no paper has it, and a quantised base needs it.
        reference: the frozen model of the KL penalty, named as `base_model` is; None takes the weights with
            which reinforcement learning begins.
        lora: an adapter to train; None trains all weights.
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
    reference: str | None = None
    entropy_coefficient: float = 0.0
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    importance_cap: Annotated[float, Field(gt=0)] | None = None
    aggregation: Literal["token_sum", "token_sum_norm", "token_mean", "sample_mean"]
    horizon: Positive = 4096
    precision: Literal["fp32", "bf16"] = "fp32"
    gradient_checkpointing: bool = False
    compile: bool | None = None
    lora: LoraSection | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        for one, other in (
            ("warm_up_steps", "warm_up_share"),
            ("mini_batch_questions", "mini_batch_samples"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"{one} and {other} exclude each other: set only one of them")
        if self.reference is not None and self.lora is not None:
            raise ValueError(
                "reference: with lora the reference is the model without its adapter: leave it out"
            )
        if self.lora is not None and self.lora.quantised and self.importance_cap is None:
            raise ValueError(
                "lora.quantised: engines sample from the base in 16 bits, and the trainer holds it in 4: "
                "correct for the difference with importance_cap, such as 2.0"
            )
        return self

    def rate(self) -> LearningRate:
        """The learning rate of each step."""
        from kbqa.training.learning_rate import LearningRate

        return LearningRate(self.learning_rate, self.decay, self.warm_up_steps, self.warm_up_share)

    def build(self, sampling: SamplingSection | None = None) -> GrpoConfig:
        """The GRPO settings.

        Args:
            sampling: how the rollouts are sampled; by default from the full distribution.
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
            # Greedy samples are scored at temperature 1.
            temperature=(sampling and sampling.temperature) or 1.0,
            truncation=Truncation() if sampling is None else sampling.truncation(),
            mini_batch_questions=self.mini_batch_questions,
            mini_batch_samples=self.mini_batch_samples,
            epochs=self.epochs,
            precision=self.precision,
            gradient_checkpointing=self.gradient_checkpointing,
            compile=self.compile,
            adapter=None if self.lora is None else self.lora.build(),
        )


class BestBySection(Section):
    """The criterion for the best weights of a run; the run ends with those, not with the last ones.

    Attributes:
        metric: a field of the split's records, such as f1, em or reward.
        split: `validation` takes the metric of each evaluation; `train` takes, at each checkpoint, its
            mean over the steps since the previous checkpoint.
    """

    metric: str = "f1"
    split: Literal["train", "validation"] = "validation"
    direction: Literal["max", "min"] = "max"


class ScheduleSection(Section):
    """How a run is paced.

    Attributes:
        steps: optimiser steps of reinforcement learning; 0 ends the run with its cold start.
        questions_per_step: groups that one optimiser step consumes.
        max_in_flight: maximum number of rollout requests in flight.
        max_staleness: maximum number of updates between the weights of a group's oldest turn and the current
            ones; an older group is dropped.
        publish_every: updates between two versions for workers, at most max_staleness + 1. Weights that are
            evaluated, are the best so far, or end the run are published in any case.
        request_deadline_s: seconds after which an unanswered request is sent again, under the same id.
        max_seconds: seconds after which reinforcement learning ends; None sets no limit.
        max_sampled_tokens: reinforcement learning ends once the policy has written this many tokens in
            rollouts, pruned branches included; this makes runs of different recipes comparable.
        max_run_seconds: reinforcement learning ends once the whole run, cold start included, has worked
            for this many seconds.
        keep_checkpoints: number of newest checkpoints kept, besides that of the best weights.
        best_by: None ends with the last weights.
    """

    steps: Annotated[int, Field(ge=0)]
    questions_per_step: Positive
    max_in_flight: Positive
    max_staleness: Annotated[int, Field(ge=0)]
    publish_every: Positive = 1
    request_deadline_s: Annotated[float, Field(gt=0)]
    checkpoint_every: Positive
    validate_every: Positive
    max_seconds: float | None = None
    max_run_seconds: float | None = None
    max_sampled_tokens: Positive | None = None
    keep_checkpoints: Positive = 2
    best_by: BestBySection | None = None

    @model_validator(mode="after")
    def _enough_in_flight(self) -> Self:
        if self.max_in_flight < self.questions_per_step:
            raise ValueError(
                f"max_in_flight: must be at least questions_per_step, which is {self.questions_per_step}"
            )
        if self.publish_every > self.max_staleness + 1:
            raise ValueError(
                "publish_every: must be at most max_staleness + 1, because older groups are dropped (it is "
                f"{self.publish_every}, and max_staleness {self.max_staleness})"
            )
        return self


AlarmName = Literal["entropy", "no_spread", "logprob_gap", "kl"]


class GuardsSection(Section):
    """Bounds on a run's metrics; see `kbqa.runs.guards`. A metric whose bound is None is not watched.

    Attributes:
        steps: number of consecutive steps that must break a bound to raise its alarm.
        min_entropy: mean entropy of the policy's tokens, nats.
        max_no_spread: share of a step's questions that teach nothing, because their returns are all equal.
        max_logprob_gap: mean absolute difference between a token's log-probability in the engine
            that wrote it and in the trainer, nats.
        max_kl: mean estimate of the divergence from the reference, nats.
        max_not_finite: the run fails after this many consecutive steps whose loss or gradient was not
            finite.
        stop_on: alarms that end reinforcement learning, as its last step would.
        patience: number of evaluations without a new best after which reinforcement learning ends; needs
            `schedule.best_by`.
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
        """The bound of an alarm: a lower bound for entropy, an upper bound for all others."""
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

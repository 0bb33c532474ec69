"""What a recipe says of the time before reinforcement: questions, small policies, cold starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from kbqa.recipes.section import Positive, Rate, Section
from kbqa.trajectory import Question

if TYPE_CHECKING:
    from kbqa.training.copying import WarmUpConfig
    from kbqa.training.sft import SftConfig
    from kbqa.training.small_policy import SmallPolicyConfig


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
    tied: bool = True
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

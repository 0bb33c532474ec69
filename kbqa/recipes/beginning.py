"""What a recipe says of the time before reinforcement: questions, small policies, cold starts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from kbqa.recipes.learning import LoraSection
from kbqa.recipes.section import Fraction, Positive, Rate, Section
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
    """A transformer from nothing; see `kbqa.training.small_policy` and `kbqa.training.copying`.

    Attributes:
        warm_up: None for a dialect in which nothing is copied.
    """

    vocabulary: Annotated[int, Field(ge=300)]
    layers: Positive
    width: Positive
    heads: Positive
    feed_forward: Positive
    max_length: Positive
    tied: bool = True
    warm_up: WarmUpSection | None = None

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
    """SFT on demonstrations: of paths, or those of a file.

    Attributes:
        paths: `mined` from the answers of questions (`kbqa.cold_start.mining`); a run then keeps the gold
            programs of all that it learns from out of everybody's sight. Or `gold`, the programs of the data
            set's cold-start questions.
        demonstrations: questions at most, of which each gives one or none; mining goes on from the
            cold-start questions to those of training.
        file: of demonstrations, in KBQA_HOME/cold_start; `kbqa cold-start` makes one. They take the place
            of paths.
        fresh_names: whether entities get new names each time that a demonstration is drawn, which a
            small policy needs (`kbqa.cold_start.imitation`) and a pretrained one does not.
        known_names: of those, the share that is drawn from among the names of other entities: those of
            the demonstrations, and topics of training questions. The rest is made up.
        recoveries: share of the demonstrations that are shown a second time as a recovery: behind a
            first turn that finds nothing and is not imitated (`kbqa.cold_start.recoveries`).
        steps: with demonstrations drawn at random.
        epochs: in place of steps: passes over all of them, each in an order of its own.
        max_length: tokens of a demonstration; longer ones are left out.
        lora: an adapter to be trained, and merged into the weights afterwards; None trains them all.
        validate_every: steps between two looks at the validation F1; the best one wins.
        patience: looks without a new best after which the cold start ends.
        warm_up_steps, decay, floor, learned_loss, cool_down_steps, precision: see
            `kbqa.training.sft.SftConfig`.
    """

    paths: Literal["mined", "gold"] = "mined"
    demonstrations: Positive
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*\.jsonl$")] | None = None
    fresh_names: bool = True
    known_names: Fraction = 0.0
    recoveries: Fraction = 0.0
    steps: Positive | None = None
    epochs: Positive | None = None
    max_length: Positive | None = None
    batch: Positive
    learning_rate: Rate
    token_budget: Positive
    validate_every: Positive
    patience: Positive
    max_seconds: float | None = None
    learned_loss: Annotated[float, Field(gt=0)] | None = None
    cool_down_steps: Positive = 150
    warm_up_steps: Annotated[int, Field(ge=0)] = 20
    decay: Literal["constant", "cosine"] = "cosine"
    floor: Fraction = 0.1
    precision: Literal["fp32", "bf16"] = "fp32"
    lora: LoraSection | None = None

    @property
    def is_mined(self) -> bool:
        """Whether demonstrations come from answers alone."""
        return self.file is None and self.paths == "mined"

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("steps: set exactly one of steps and epochs, and the other one to null")
        if self.epochs is not None and self.learned_loss is not None:
            raise ValueError("learned_loss: can only be used with steps; set it to null if you set epochs")
        if self.lora is not None and self.lora.quantised:
            raise ValueError("lora.quantised: the adapter is merged into full weights, so set this to false")
        return self

    def build(self, demonstrations: int) -> SftConfig:
        """Numbers of an imitation of so many demonstrations."""
        from kbqa.training.sft import SftConfig

        passes = math.ceil((self.epochs or 0) * demonstrations / self.batch)
        return SftConfig(
            steps=self.steps or passes,
            batch=self.batch,
            learning_rate=self.learning_rate,
            token_budget=self.token_budget,
            learned_loss=self.learned_loss,
            cool_down_steps=self.cool_down_steps,
            warm_up_steps=self.warm_up_steps,
            decay=self.decay,
            floor=self.floor,
            precision=self.precision,
        )

"""Recipe sections for the time before reinforcement learning: questions, small policies, cold starts."""

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
    """A transformer with random weights; see `kbqa.training.small_policy` and `kbqa.training.copying`.

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
        max_answers: questions with more gold answers are left out of every split; a dialect with
            scalar answers cannot use them.
    """

    max_answers: Positive | None = None

    def suit(self, question: Question) -> bool:
        return self.max_answers is None or len(question.answers) <= self.max_answers


class ColdStartSection(Section):
    """Supervised fine-tuning on demonstrations, which are played from paths or read from a file.

    Attributes:
        paths: `mined` finds paths by search from the questions' answers (`kbqa.cold_start.mining`); the run
            then hides the gold programs of all questions that it learns from. `gold` takes the gold
            programs of the data set's cold-start questions.
        demonstrations: maximum number of questions, each of which gives one demonstration or none; mining
            continues with the training questions after the cold-start questions.
        file: file of demonstrations in KBQA_HOME/cold_start, used in place of paths; `kbqa cold-start`
            makes one.
        fresh_names: whether entities get new names each time a demonstration is drawn. A small policy
            needs this (`kbqa.cold_start.imitation`), a pretrained one does not.
        known_names: share of the new names that are names of other entities, taken from the
            demonstrations and the topics of training questions. The rest are made up.
        recoveries: share of the demonstrations that are repeated as a recovery: after a first turn that
            finds nothing and is not imitated (`kbqa.cold_start.recoveries`).
        withheld: share of the demonstrations that are repeated with an option missing that leads to the
            answer; what is imitated then is to decline (`kbqa.cold_start.withholding`).
        steps: optimiser steps, on demonstrations drawn at random.
        epochs: alternative to steps: passes over all demonstrations, each in a new random order.
        graphs: number of graphs from which the demonstrations of a step are drawn, if a data set has many.
            A chooser encodes the relations of each; None draws from all.
        max_length: maximum tokens of a demonstration; longer ones are left out.
        lora: an adapter to train and then merge into the weights; None trains all weights.
        validate_every: steps between two evaluations of the validation F1; the best weights are kept.
        patience: number of evaluations without a new best F1 after which the cold start ends.
        warm_up_steps, decay, floor, learned_loss, cool_down_steps, precision, gradient_checkpointing: see
            `kbqa.training.sft.SftConfig`.
    """

    paths: Literal["mined", "gold"] = "mined"
    demonstrations: Positive
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*\.jsonl$")] | None = None
    fresh_names: bool = True
    known_names: Fraction = 0.0
    recoveries: Fraction = 0.0
    withheld: Fraction = 0.0
    steps: Positive | None = None
    epochs: Positive | None = None
    graphs: Positive | None = None
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
    gradient_checkpointing: bool = False
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
        if self.epochs is not None and self.graphs is not None:
            raise ValueError("graphs: can only be used with steps; set it to null if you set epochs")
        if self.lora is not None and self.lora.quantised:
            raise ValueError("lora.quantised: the adapter is merged into full weights, so set this to false")
        return self

    def build(self, demonstrations: int) -> SftConfig:
        """The SFT settings for a number of demonstrations."""
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
            gradient_checkpointing=self.gradient_checkpointing,
            adapter=None if self.lora is None else self.lora.build(),
        )

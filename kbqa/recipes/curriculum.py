"""Recipe sections for the curriculum: the order of questions, and rewards that change during training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kbqa.curricula import (
    Abstraction,
    BalancedDeck,
    Course,
    Deck,
    MixedDeck,
    Stage,
    Stratum,
    Tier,
    Tiers,
    Until,
    representatives,
    stratum,
)
from kbqa.curricula.course import Questions
from kbqa.errors import DatasetError
from kbqa.recipes.section import Fraction, Positive, Section
from kbqa.trajectory import Question

_ALL: tuple[Tier, ...] = ("easy", "medium", "hard")


class TiersSection(Section):
    """See `kbqa.curricula.Tiers`."""

    easy: Positive = 1
    medium: Positive = 2

    @model_validator(mode="after")
    def _rise(self) -> Self:
        if self.medium <= self.easy:
            raise ValueError(f"medium: must be greater than easy, which is {self.easy}")
        return self

    def build(self) -> Tiers:
        return Tiers(**self.model_dump())


class UntilSection(Section):
    """When a stage ends; see `kbqa.curricula.Until`."""

    steps: Positive | None = None
    at_least: float | None = None
    patience: Positive | None = None
    min_gain: Annotated[float, Field(ge=0)] = 0.0
    metric: str = "f1"
    split: Literal["train", "validation"] = "validation"
    window: Positive = 10

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if (self.steps, self.at_least, self.patience) == (None, None, None):
            raise ValueError("this condition is never met: set steps, at_least or patience")
        return self

    def build(self) -> Until:
        return Until(**self.model_dump())


class StageSection(Section):
    """A stage of reinforcement learning.

    Attributes:
        reward: options of the recipe's reward that this stage overrides.
        tiers: difficulties of the questions asked. A question without a known gold program has no
            difficulty; it is asked only in stages with all three tiers.
        until: when the next stage begins; None for the last stage.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    reward: dict[str, Any] = {}
    tiers: Annotated[tuple[Tier, ...], Field(min_length=1)] = _ALL
    until: UntilSection | None = None


class CurriculumSection(Section):
    """How training questions are drawn, stage by stage.

    Attributes:
        balance: the kinds between which questions are balanced; None does not balance.
        strength: strength of the balance: 0 keeps each kind's natural share, 1 gives equal shares.
        representatives: number of questions kept per reasoning pattern; None keeps all.
        pattern: what a pattern is; see `kbqa.curricula.patterns`.
        tiers: bounds of the difficulties.
    """

    balance: Stratum | None = None
    strength: Fraction = 1.0
    representatives: Positive | None = None
    pattern: Abstraction = "relations"
    tiers: TiersSection = TiersSection()
    stages: Annotated[tuple[StageSection, ...], Field(min_length=1)] = (StageSection(name="all"),)

    @model_validator(mode="after")
    def _lead_on(self) -> Self:
        *before, last = self.stages
        endless = [stage.name for stage in before if stage.until is None]
        if endless:
            raise ValueError(
                f"stages: {endless[0]} never ends, so the stages after it never begin: set its until"
            )
        if last.until is not None:
            raise ValueError(
                f"stages: {last.name} is the last stage and ends with the schedule: remove its until"
            )
        return self

    def build(self, questions: Sequence[Question], seed: int, shares: Mapping[str, float]) -> Course:
        """The course over training questions.

        In a mixture, every stage keeps the shares; kinds are balanced within each part.

        Args:
            shares: see `kbqa.datasets.Dataset`.

        Raises:
            DatasetError: a stage has no questions.
        """
        kept: Iterable[Question] = questions
        if self.representatives is not None:
            kept = representatives(questions, self.representatives, self.pattern)
        tiers = self.tiers.build()
        # Decomposing a program is costly, so each tier is computed once.
        tiered = [(question, tiers.of(question)) for question in kept]
        return Course([self._stage(stage, tiered, seed, shares) for stage in self.stages])

    def _stage(
        self,
        section: StageSection,
        tiered: Sequence[tuple[Question, Tier | None]],
        seed: int,
        shares: Mapping[str, float],
    ) -> Stage:
        whole = set(section.tiers) == set(_ALL)
        asked = [question for question, tier in tiered if whole or tier in section.tiers]
        if not asked:
            raise DatasetError(
                f"curriculum.stages: {section.name} has no questions: no training question is known to be "
                f"{' or '.join(section.tiers)} (difficulty is known only from gold paths, forms or "
                "queries, which a run with cold_start.paths=mined does not see)"
            )
        until = None if section.until is None else section.until.build()
        return Stage(section.name, _shared(asked, seed, shares, self._deck), until)

    def _deck(self, questions: Sequence[Question], seed: int | str) -> Questions:
        by = self.balance
        if by is None:
            return Deck(questions, seed)
        return BalancedDeck(questions, seed, lambda question: stratum(question, by), self.strength)


def plain_course(questions: Sequence[Question], seed: int, shares: Mapping[str, float]) -> Course:
    """All questions, epoch by epoch, without a curriculum; those of a mixture by its shares."""
    return Course([Stage("all", _shared(questions, seed, shares, Deck))])


def _shared(
    questions: Sequence[Question],
    seed: int,
    shares: Mapping[str, float],
    deck: Callable[[Sequence[Question], int | str], Questions],
) -> Questions:
    """A deck of all questions; if they are a mixture, one of its parts' decks."""
    return MixedDeck(questions, seed, shares, deck) if shares else deck(questions, seed)

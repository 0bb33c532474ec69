"""The recipe: one protocol, one rollout kind, one reward, one advantage, and numbers.

Reading a recipe must not load torch, because services and the command line read recipes when they
start. Sections therefore import what needs torch only in their `build`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.protocols.form_chooser import FormChoosingProtocol
from kbqa.recipes.beginning import ColdStartSection, QuestionsSection, SmallPolicySection
from kbqa.recipes.curriculum import CurriculumSection
from kbqa.recipes.learning import (
    GuardsSection,
    OptimisationSection,
    ScheduleSection,
)
from kbqa.recipes.play import (
    AnyAdvantageSection,
    AnyRolloutSection,
    EvaluationSection,
    GraphSection,
    JudgeSection,
    ProtocolSection,
    RewardSection,
)
from kbqa.recipes.section import Section
from kbqa.rewards import Reward, TreeReward


class Recipe(Section):
    """All choices of one experiment.

    Attributes:
        base_model: the pretrained model to start from; None makes a small policy with random weights.
        chooser_head: what scores the options if `base_model` is a sentence encoder (`kbqa.policies.chooser`).
        weights_seed: random seed of new weights, if it is not that of the run.
        chat_template: whether episodes are messages in the base model's chat template, if it has one;
            otherwise they are bare text, behind the tokenizer's first token.
        deterministic: the same seed gives the same numbers on the same machine, even if the run is
            interrupted; completions are then computed one at a time, which is slow.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    base_model: str | None = None
    chooser_head: Literal["recurrent", "attentive"] = "recurrent"
    weights_seed: int | None = None
    chat_template: bool = True
    questions: QuestionsSection = QuestionsSection()
    protocol: ProtocolSection
    graph: GraphSection = GraphSection()
    rollout: AnyRolloutSection
    evaluation: EvaluationSection = EvaluationSection()
    reward: RewardSection
    judge: JudgeSection = JudgeSection()
    advantage: AnyAdvantageSection
    optimisation: OptimisationSection
    schedule: ScheduleSection
    guards: GuardsSection = GuardsSection()
    deterministic: bool = False
    small_policy: SmallPolicySection | None = None
    cold_start: ColdStartSection | None = None
    curriculum: CurriculumSection | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        is_tree = self.rollout.kind == "tree"
        if is_tree != (self.advantage.kind == "state"):
            raise ValueError(
                f"advantage.kind: {self.advantage.kind!r} cannot be combined with rollout.kind "
                f"{self.rollout.kind!r}: use 'state' for trees, and only for trees"
            )
        if is_tree and not isinstance(self.reward.build(), TreeReward):
            raise ValueError(f"reward.name: {self.reward.name!r} cannot score the steps of a tree")
        if self.optimisation.lora is not None and (self.base_model is None or self.cold_start is not None):
            raise ValueError(
                "optimisation.lora: an adapter needs base_model, and excludes cold_start, which would "
                "change the base model"
            )
        protocol = self.protocol.build()
        may_decline = isinstance(protocol, FormChoosingProtocol) and protocol.may_decline
        if self.cold_start is not None and self.cold_start.withheld and not may_decline:
            raise ValueError("cold_start.withheld: needs the protocol form-chooser with may_decline: true")
        chooses = isinstance(protocol, ChoosingProtocol | FormChoosingProtocol)
        if self.evaluation.beam > 1 and not (chooses and self.evaluation.temperature == 0):
            raise ValueError("evaluation.beam: needs a protocol of choices, and evaluation.temperature: 0")
        if self.schedule.steps == 0 and self.cold_start is None:
            raise ValueError("schedule.steps: without a cold start there must be at least one")
        if self.guards.patience is not None and self.schedule.best_by is None:
            raise ValueError("guards.patience: needs schedule.best_by, which names the metric: set it")
        for stage in self.curriculum.stages if self.curriculum is not None else ():
            try:
                RewardSection(**self._reward_options(stage.reward))
            except ValidationError as error:
                faults = "; ".join(f"{fault['loc'][0]}: {fault['msg']}" for fault in error.errors())
                raise ValueError(f"curriculum.stages: {stage.name}: reward: {faults}") from None
        schedule = self.schedule
        in_step = schedule.max_staleness == 0 and schedule.max_in_flight == schedule.questions_per_step
        if self.deterministic and not in_step:
            raise ValueError(
                "deterministic: the groups of a step must not depend on the speed of workers; set "
                f"schedule.max_staleness=0 and schedule.max_in_flight={schedule.questions_per_step}"
            )
        return self

    def reward_in(self, stage: int | None) -> Reward:
        """The reward in a stage of the curriculum, counted from 0; None means the recipe's own reward.

        Raises:
            ValueError: the recipe has no such stage.
        """
        if stage is None:
            return self.reward.build()
        stages = self.curriculum.stages if self.curriculum is not None else ()
        if stage >= len(stages):
            raise ValueError(f"recipe {self.name} has {len(stages)} stages; there is no stage number {stage}")
        return RewardSection(**self._reward_options(stages[stage].reward)).build()

    def _reward_options(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.reward.model_dump(), **changes}

    def digest(self) -> str:
        """SHA-256 over all resolved values that are not a section's default, hexadecimal.

        A key that is added later, with what happened before as its default, changes no digest.
        """
        canonical = json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

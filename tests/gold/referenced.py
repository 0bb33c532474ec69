"""KBQA-R1's referenced rejection sampling with a teacher that follows its hints to the letter (IV-B1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbqa.cold_start.collecting import ReferencedTeacher, SamplingTeacher, Setting, acceptance, attempt
from kbqa.cold_start.leaks import HINT_MARK
from kbqa.datasets.gold import gold_form_of, gold_namer
from kbqa.policies.base import Codec, Completion, FinishReason, SamplingParams
from kbqa.recipes import load_recipe
from kbqa.rollouts import Agent
from kbqa.trajectory import Segment
from tests.gold.graphs import questions
from tests.gold.table import Ground

_STEP = re.compile(r"the next step is\n(.*?</action>)", re.DOTALL)
_MADE = re.compile(r"expression(\d+) =")


@dataclass(frozen=True)
class Obedient:
    """A policy that takes the step which it reads behind the episode, and answers when none is left."""

    codec: Codec
    max_length: int = 1_000_000

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **until: object
    ) -> list[Completion]:
        return [self._written(self.codec.decode(prompt)) for prompt in prompts]

    def _written(self, read: str) -> Completion:
        episode, _, hint = read.rpartition(HINT_MARK)
        step = _STEP.search(hint)
        made = max((int(number) for number in _MADE.findall(episode)), default=1)
        command = step[1] if step else f"<answer>expression{made}</answer>"
        ids = tuple(self.codec.encode([Segment(f"<think>This comes next.</think>{command}")]))
        return Completion(ids, (0.0,) * len(ids), FinishReason.STOP, "v000001-obedient")


def accepted(at: Ground, codec: Codec, n: int = 1) -> dict[str, Any]:
    """Acceptance statistics over a data set's questions, as `kbqa cold-start` writes them."""
    recipe = load_recipe("kbqa-r1")
    protocol, budget = recipe.protocol.build(), recipe.rollout.budget()
    tools = replace(recipe.graph.terms(), encoder=None).over(at.tools)
    setting = Setting(protocol, tools, budget.max_turns)
    teacher = ReferencedTeacher(
        setting, SamplingTeacher(Agent(Obedient(codec), codec, protocol, tools, budget), n)
    )
    asked = questions(at.dataset, at.data, at.graphs, gold_form_of(protocol))
    named = gold_namer(asked, tools, at.dataset)
    return acceptance([attempt(named(question), teacher, setting) for question in asked])

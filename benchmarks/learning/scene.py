"""Where the runs of a variant under a seed take place: its recipe, its world, and an agent over a policy."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.learning.design import Variant
from kbqa.datasets import Splits, load_dataset
from kbqa.datasets.catalog import Dataset
from kbqa.kg.actions import GraphTools
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.base import Completion, SamplingParams
from kbqa.policies.transformers import TransformersPolicy
from kbqa.protocols import AgentProtocol
from kbqa.recipes import Recipe
from kbqa.rollouts import Agent
from kbqa.runs.student import Student

ROWS = 64
"""Episodes under way."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Attributes:
    questions: those that suit the recipe.
    """

    recipe: Recipe
    dataset: Dataset
    questions: Splits
    protocol: AgentProtocol
    tools: GraphTools
    seed: int

    @classmethod
    @contextmanager
    def open(cls, variant: Variant, seed: int) -> Iterator[Scene]:
        """The scene, with its graph in this process."""
        recipe, dataset = variant.resolved, load_dataset(variant.dataset, seed)
        with tempfile.TemporaryDirectory(prefix="kbqa-learning-") as home:
            graph = Path(home) / "graph.tsv"
            graph.write_text("".join(line + "\n" for line in dataset.graph_lines()), encoding="utf-8")
            catalog = GraphCatalog(Path(home))
            try:
                catalog.load(dataset.kg, graph)
                questions = dataset.splits.only(recipe.questions.suit)
                tools = LocalGraphTools(catalog)
                yield cls(recipe, dataset, questions, recipe.protocol.build(), tools, seed)
            finally:
                catalog.close()

    @contextmanager
    def agent(self, student: Student) -> Iterator[tuple[Agent, Metered]]:
        """What plays with the weights that `student` has at the time."""
        rollout = self.recipe.rollout
        length = min(rollout.max_tokens, int(student.model.config.max_position_embeddings))
        budget = replace(rollout.budget(), max_tokens=length)
        student.model.eval()
        policy = Metered(
            TransformersPolicy(student.model, student.codec, "trial", max_length=length, max_rows=ROWS)
        )
        agent = Agent(policy, student.codec, self.protocol, self.tools, budget, rollout.truncation())
        try:
            yield agent, policy
        finally:
            policy.close()


class Metered:
    """A policy that counts what it samples, pruned branches too."""

    def __init__(self, policy: TransformersPolicy) -> None:
        self._policy, self.tokens, self._counting = policy, 0, threading.Lock()

    @property
    def max_length(self) -> int:
        return self._policy.max_length

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **until: Any
    ) -> list[Completion]:
        completions = self._policy.generate(prompts, params, **until)
        with self._counting:
            self.tokens += sum(len(completion.token_ids) for completion in completions)
        return completions

    def forget(self) -> None:
        """What was computed with weights that have changed since."""
        self._policy.swap(self._policy.version, lambda model: None)

    def close(self) -> None:
        self._policy.close()

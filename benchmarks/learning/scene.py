"""Where the runs of a variant under a seed take place: its recipe, its world, and who plays there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning.design import Variant
from kbqa.datasets import Dataset, Splits, load_dataset
from kbqa.evaluation import evaluate
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols import AgentProtocol
from kbqa.recipes import Recipe
from kbqa.rollouts.many import many_rollouts
from kbqa.serving.hosting import open_in_process
from kbqa.serving.players import Players

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
    tools: LocalGraphTools
    seed: int

    @classmethod
    @contextmanager
    def open(cls, variant: Variant, seed: int) -> Iterator[Scene]:
        """The scene, with its graphs in this process."""
        recipe, dataset = variant.resolved, load_dataset(variant.dataset, seed)
        with tempfile.TemporaryDirectory(prefix="kbqa-learning-") as home:
            catalog = GraphCatalog(Path(home))
            try:
                for graph in dataset.graphs:
                    catalog.load(graph.name, graph.as_file(Path(home)))
                questions = dataset.splits.only(recipe.questions.suit)
                tools = LocalGraphTools(catalog)
                yield cls(recipe, dataset, questions, recipe.protocol.build(), tools, seed)
            finally:
                catalog.close()

    @contextmanager
    def players(self, policy: Path) -> Iterator[Players]:
        """What plays with the policy in a directory."""
        codec = TokenizerCodec.load(policy)
        hosted = open_in_process(
            policy, None, codec, policy.name, longest=self.recipe.rollout.max_tokens, max_rows=ROWS
        )
        try:
            yield Players.of(self.recipe, hosted.policy, codec)
        finally:
            hosted.close()

    def f1(self, policy: Path) -> list[float]:
        """Of each test question, as the recipe evaluates."""
        test = self.questions.test
        with self.players(policy) as players:
            agent, temperature = players.player(self.tools, 0), players.draw(0).temperature
            played = dict(many_rollouts(agent, test, temperature, width=ROWS))
        runs = [(question, [played[place]]) for place, question in enumerate(test)]
        records = evaluate(runs, self.recipe.judge.build()).records
        return [record.measures["f1"].value for record in records]

"""Where the runs of a variant under a seed take place: its recipe, its world, and who plays there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning.design import Variant
from kbqa.datasets import Dataset, Splits, load_dataset
from kbqa.datasets.catalog import SAMPLE_SIZES
from kbqa.datasets.world import generate_questions, generate_world
from kbqa.evaluation import evaluate
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import Manifest
from kbqa.protocols import AgentProtocol
from kbqa.recipes import Recipe
from kbqa.rollouts.many import many_rollouts
from kbqa.serving.hosting import open_in_process
from kbqa.serving.players import Players

ROWS = 64
"""Episodes under way."""
TESTS = 1000
"""Test questions: so many that it hardly matters which were drawn (docs/measurements/ablations.md#power)."""


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
                questions = _with_tests(dataset, seed).only(recipe.questions.suit)
                tools = LocalGraphTools(catalog)
                yield cls(recipe, dataset, questions, recipe.protocol.build(), tools, seed)
            finally:
                catalog.close()

    @contextmanager
    def players(self, policy: Path, manifest: Manifest | None = None) -> Iterator[Players]:
        """What plays with the policy in a directory.

        Args:
            manifest: what it says of itself; None is a whole model.
        """
        codec = TokenizerCodec.load(policy)
        hosted = open_in_process(
            policy, manifest, codec, policy.name, longest=self.recipe.rollout.max_tokens, max_rows=ROWS
        )
        try:
            yield Players.of(self.recipe, hosted.policy, codec)
        finally:
            hosted.close()

    def f1(self, policy: Path, manifest: Manifest | None = None) -> list[float]:
        """Of each test question, as the recipe evaluates; for the arguments see `players`."""
        test = self.questions.test
        with self.players(policy, manifest) as players:
            agent, temperature = players.player(self.tools, 0), players.draw(0).temperature
            played = dict(many_rollouts(agent, test, temperature, width=ROWS))
        runs = [(question, [played[place]]) for place, question in enumerate(test)]
        records = evaluate(runs, self.recipe.judge.build()).records
        return [record.measures["f1"].value for record in records]


def _with_tests(dataset: Dataset, seed: int) -> Splits:
    """The questions of a data set, with enough for a test.

    Of the small world, those beyond the usual ones are drawn after all others, which stay as they are.
    """
    if dataset.name != "world":
        return dataset.splits
    return generate_questions(generate_world(seed), seed, {**SAMPLE_SIZES, "test": TESTS}, "world")

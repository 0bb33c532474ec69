"""From a policy and its recipe to what plays episodes: the one way that there is.

Training, evaluation, a demonstration's teacher and an answer to a user differ in which of the recipe's
samplings they play with, and in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

from kbqa.environment import Budget
from kbqa.kg.actions import GraphTools
from kbqa.kg.terms import GraphTerms
from kbqa.policies.base import ChatPolicy, Codec, Policy, RankingPolicy, Truncation
from kbqa.protocols import AgentProtocol
from kbqa.recipes import Recipe
from kbqa.recipes.play import EvaluationSection, SamplingSection
from kbqa.rollouts import Agent, ChatAgent, Player


class Draw(NamedTuple):
    """How tokens are drawn.

    Attributes:
        temperature: 0 is greedy.
        beam: as that of a `Searcher`.
    """

    temperature: float
    truncation: Truncation = Truncation()
    beam: int = 1

    @classmethod
    def of(cls, section: SamplingSection) -> Draw:
        beam = section.beam if isinstance(section, EvaluationSection) else 1
        return cls(section.temperature, section.truncation(), beam)


GREEDY = Draw(0.0)


@dataclass(frozen=True, slots=True)
class Players:
    """What plays a policy's episodes.

    Attributes:
        codec: the policy's tokenizer; None for a model that is known by its text alone.
        budget: of an episode, no longer than the engine takes.
        first: the sampling of a question's first run, by which a policy is evaluated.
        others: that of its other runs, and of all in training.
        native_tools: as that of a `ChatAgent`.
        terms: those on which the recipe asks the graph.
    """

    policy: Policy | ChatPolicy
    codec: Codec | None
    protocol: AgentProtocol
    budget: Budget
    first: Draw = GREEDY
    others: Draw = Draw(1.0)
    native_tools: bool = True
    terms: GraphTerms = GraphTerms()

    @classmethod
    def of(cls, recipe: Recipe, policy: Policy, codec: Codec) -> Self:
        """A policy of tokens, as its recipe plays."""
        budget = recipe.rollout.budget()
        return cls(
            policy,
            codec,
            recipe.protocol.build(),
            replace(budget, max_tokens=min(budget.max_tokens, policy.max_length)),
            Draw.of(recipe.evaluation),
            Draw.of(recipe.rollout),
            terms=recipe.graph.terms(),
        )

    @classmethod
    def of_chat(cls, recipe: Recipe, policy: ChatPolicy, *, native_tools: bool = True) -> Self:
        """A model behind an endpoint, in a recipe's dialect and within its budget."""
        return cls(
            policy,
            None,
            recipe.protocol.build(),
            recipe.rollout.budget(),
            Draw.of(recipe.evaluation),
            Draw.of(recipe.rollout),
            native_tools,
            recipe.graph.terms(),
        )

    def interactive(self) -> Self:
        """The same for users, who do not wait for queries as long as training does."""
        return replace(self, terms=replace(self.terms, query_timeout_s=None))

    @property
    def repeatable(self) -> bool:
        """Whether the first run of a question comes out the same again."""
        return self.codec is not None and self.first.temperature == 0

    def draw(self, run: int) -> Draw:
        """The sampling of a question's run; they are counted from 0."""
        return self.others if run else self.first

    def player(self, tools: GraphTools, run: int, budget: Budget | None = None) -> Player[Any]:
        """What plays a question's run, and those beside it that are sampled alike.

        Args:
            budget: in place of the recipe's.
        """
        budget, tools = budget or self.budget, self.terms.over(tools)
        if self.codec is None:
            chat = cast(ChatPolicy, self.policy)
            return ChatAgent(chat, self.protocol, tools, budget, native_tools=self.native_tools)
        policy, draw = cast(Policy, self.policy), self.draw(run)
        beam = draw.beam if isinstance(policy, RankingPolicy) else 1
        return Agent(policy, self.codec, self.protocol, tools, budget, draw.truncation, beam)

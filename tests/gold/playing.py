"""The gold agent: a policy that recites a gold program in a recipe's dialect, within its budget.

It is played as any policy: by tokens, by `linear_rollout`, against the graph's own tools. Of what its turns
found it reads the results themselves, since a script cannot read text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbqa.judges.matching import MatchingJudge
from kbqa.kg.actions import Action, ActionResult, GraphTools
from kbqa.policies.base import Codec, Completion, FinishReason, SamplingParams
from kbqa.recipes import Recipe
from kbqa.rewards import Instruments, Reward
from kbqa.rollouts import Agent, linear_rollout
from kbqa.trajectory import Question, RewardedTrajectory, Segment
from tests.gold.scripts import Script


class Listening:
    """Graph tools that keep the last results."""

    def __init__(self, tools: GraphTools) -> None:
        self._tools = tools
        self.results: list[ActionResult] = []

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        self.results = self._tools.execute(kg, actions, graph=graph)
        return self.results


class Reciting:
    """A policy that writes the turns of one script."""

    max_length = 1_000_000

    def __init__(self, codec: Codec, script: Script, heard: Listening) -> None:
        self._codec, self._script, self._heard = codec, script, heard
        self._began = False

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, **until: object
    ) -> list[Completion]:
        assert len(prompts) == 1
        try:
            text = self._script.send(self._heard.results) if self._began else next(self._script)
        except StopIteration:
            text = ""  # the answer was not understood
        self._began = True
        ids = self._codec.encode([Segment(text)])
        room = min(params.max_tokens, params.max_total_tokens - len(prompts[0]))
        reason = FinishReason.STOP if len(ids) <= room else FinishReason.LENGTH
        kept = tuple(ids[:room])
        return [Completion(kept, (0.0,) * len(kept), reason, "v000001-gold")]


@dataclass(frozen=True)
class Stage:
    """Where episodes are played: a recipe, its graph tools, and a tokenizer."""

    recipe: Recipe
    tools: GraphTools
    codec: Codec

    def play(self, question: Question, script: Script) -> RewardedTrajectory:
        """Plays a script, and scores it as a worker does."""
        # No encoder is downloaded for a test: relations are compared by n-grams.
        terms = replace(self.recipe.graph.terms(), encoder=None)
        heard = Listening(terms.over(self.tools))
        budget = self.recipe.rollout.budget()
        protocol = self.recipe.protocol.build()
        agent = Agent(Reciting(self.codec, script, heard), self.codec, protocol, heard, budget)
        [trajectory] = linear_rollout(agent, question, 1, 0.0)
        reward: Reward = self.recipe.reward.build()
        return reward.score(question, trajectory, Instruments(terms.over(self.tools), MatchingJudge()))

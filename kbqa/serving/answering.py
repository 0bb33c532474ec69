"""What a policy version answers, to compare it with another one before a promotion."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kbqa.evaluation import Record, evaluate
from kbqa.kg.tools import ListedGraphTools
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyVersion
from kbqa.recipes import Recipe, recipe_from
from kbqa.rollouts.many import many_rollouts
from kbqa.serving.hosting import open_in_process
from kbqa.serving.players import Players
from kbqa.trajectory import Question, Trajectory

_ROWS, _CACHED_TOKENS = 64, 131_072


def answered(
    version: PolicyVersion, questions: Sequence[Question], tools: ListedGraphTools
) -> Sequence[Record]:
    """What a version answers, one episode a question, as it answers users, in their order.

    Raises:
        PolicyError, GraphError: it cannot be asked, or the graph does not answer.
    """
    cases = [
        (one, [played]) for one, played in zip(questions, episodes(version, questions, tools), strict=True)
    ]
    return evaluate(cases, _recipe(version).judge.build()).records


def episodes(
    version: PolicyVersion, questions: Sequence[Question], tools: ListedGraphTools
) -> Sequence[Trajectory]:
    """How a version answers, one episode a question, as it answers users, in their order.

    Raises:
        PolicyError, GraphError: it cannot be asked, or the graph does not answer.
    """
    recipe = _recipe(version)
    codec = TokenizerCodec.load(version.path)
    hosted = open_in_process(
        version.path,
        version.manifest,
        codec,
        version.id,
        longest=recipe.rollout.max_tokens,
        max_rows=_ROWS,
        cached_tokens=_CACHED_TOKENS,
    )
    with closing(hosted):
        players = Players.of(recipe, hosted.policy, codec)
        player, temperature = players.player(tools, 0), players.draw(0).temperature
        played = dict(many_rollouts(player, questions, temperature, width=_ROWS, seed=0))
    return [played[place] for place in range(len(questions))]


def _recipe(version: PolicyVersion) -> Recipe:
    return recipe_from(version.recipe(), f"{version.run}: recipe.json")

"""What a policy that chooses imitates in a lesson: corrections, and what it already answers right.

A correction names no relation, so a path is mined that leads from its topic to its answers. An earlier
question is replayed as the policy itself answered it, if it did so correctly. This also covers questions for
which no path can be mined, such as counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from kbqa.cold_start.demonstrations import is_right, play, play_program, recite
from kbqa.cold_start.files import DemonstrationEntry
from kbqa.cold_start.mining import bounds_for, mine
from kbqa.corrections.judging import EARLIER
from kbqa.datasets.gold import gold_namer
from kbqa.datasets.splits import spread
from kbqa.kg.tools import ListedGraphTools
from kbqa.policy_store import PolicyVersion
from kbqa.recipes import Recipe
from kbqa.serving.answering import episodes
from kbqa.trajectory import Question

_FEWEST_REPLAYED = 270  # earlier questions, however few corrections there are


def demonstrations(
    before: PolicyVersion,
    recipe: Recipe,
    corrections: Sequence[Question],
    earlier: Sequence[Question],
    tools: ListedGraphTools,
    share: float,
    seed: int,
) -> list[DemonstrationEntry]:
    """Demonstrations of corrections and of earlier questions, the latter as `before` answers them.

    Corrections that the recipe's protocol cannot play and earlier questions that `before` answers wrong are
    left out. If there are few corrections, each is in the list several times; if none can be played, the list
    is empty.

    Args:
        share: of the corrections among the demonstrations.

    Raises:
        PolicyError, GraphError: the version cannot be asked, or the graph does not answer.
    """
    taught = list(_mined(recipe, corrections, tools, seed))
    if not taught:
        return []
    beside = (1 - share) / share  # earlier questions for each correction
    asked = spread(earlier, max(_FEWEST_REPLAYED, ceil(beside * len(taught))))
    replayed = list(_replayed(before, recipe, asked, tools))
    times = max(1, round(len(replayed) / beside / len(taught)))
    return [*times * taught, *replayed]


def _mined(
    recipe: Recipe, corrections: Sequence[Question], tools: ListedGraphTools, seed: int
) -> Iterator[DemonstrationEntry]:
    protocol, turns = recipe.protocol.build(), recipe.rollout.max_turns
    for question in mine(corrections, tools, bounds_for(protocol, turns), seed):
        if played := play_program(question, protocol, tools, turns):
            yield DemonstrationEntry(played.demonstration, protocol.name, "mined", "correction")


def _replayed(
    before: PolicyVersion, recipe: Recipe, earlier: Sequence[Question], tools: ListedGraphTools
) -> Iterator[DemonstrationEntry]:
    protocol, turns = recipe.protocol.build(), recipe.rollout.max_turns
    asked = list(map(gold_namer(earlier, tools, EARLIER), earlier))
    for question, episode in zip(asked, episodes(before, asked, tools), strict=True):
        said = recite(turn.text for turn in episode.turns)
        played = play(question, protocol, tools, said, turns)
        if is_right(played):
            yield DemonstrationEntry(played.demonstration, protocol.name, "replay", before.id)

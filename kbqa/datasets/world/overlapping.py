"""The small world with two relations in place of each: one is right, the other agrees with it in part.

Both say nearly the same, and which of them is right differs by relation and by seed, so that only rewards can
tell. An answer by the other is partly right: a narrow relation has half of the facts and no other, a wide one
has all of them and as many that are wrong.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from kbqa.datasets.splits import Splits
from kbqa.datasets.world.small import Triple, World, generate_questions, generate_world
from kbqa.trajectory import Question

SIZE = 2.5
"""Of the world: a smaller one has too few questions of one hop with several answers."""
MIN_ANSWERS = 2  # an answer is never partly right if there is only one
MAX_ANSWERS = 20
MAX_LOOKUPS = 50
KEPT = 0.5
"""Share of the facts that a narrow relation has."""

_ENDINGS = ("", "_recorded")


class _Names(NamedTuple):
    """What a relation of the small world is replaced by."""

    right: str
    other: str
    wide: bool


def generate_overlapping_world(seed: int, sizes: dict[str, int], kg: str) -> tuple[World, Splits]:
    """The world, and questions whose gold paths have the right relations.

    Args:
        sizes, kg: see `generate_questions`.
    """
    world, rng = generate_world(seed, SIZE), random.Random(f"world-overlapping/{seed}")
    splits = generate_questions(
        world,
        seed,
        sizes,
        kg,
        min_answers=MIN_ANSWERS,
        max_answers=MAX_ANSWERS,
        max_lookups=MAX_LOOKUPS,
    )
    facts: defaultdict[str, list[Triple]] = defaultdict(list)
    for triple in world.triples:
        facts[triple[1]].append(triple)
    names = {relation: _names(relation, rng) for relation in facts}
    triples = [
        triple for relation, stated in facts.items() for triple in _overlapping(stated, names[relation], rng)
    ]
    return World(tuple(dict.fromkeys(triples)), world.types), splits.map(lambda one: _renamed(one, names))


def _names(relation: str, rng: random.Random) -> _Names:
    right, other = rng.sample([relation + ending for ending in _ENDINGS], len(_ENDINGS))
    return _Names(right, other, wide=rng.random() < 0.5)


def _overlapping(stated: Sequence[Triple], names: _Names, rng: random.Random) -> Iterator[Triple]:
    tails = [tail for _, _, tail in stated]
    for head, _, tail in stated:
        yield head, names.right, tail
        if names.wide or rng.random() < KEPT:
            yield head, names.other, tail
        if names.wide and (wrong := rng.choice(tails)) != head:
            yield head, names.other, wrong


def _renamed(question: Question, names: dict[str, _Names]) -> Question:
    path = question.path or ()
    return replace(question, path=tuple(replace(hop, relation=names[hop.relation].right) for hop in path))

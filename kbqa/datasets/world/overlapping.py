"""The small world with two relations in place of each, which agree in part.

Both say nearly the same, and which of them is which differs by relation and by seed, so that only rewards
can tell. A narrow relation has some of the facts and no other, a wide one has all of them and wrong ones
besides.

* `world-overlapping`: one of the two is right. The other is narrow and has half of the facts, or it is wide
  and has as many wrong facts as right ones.
* `world-inexact`: none is right. One is narrow: of the facts of a node, it has one. The other is wide and has
  half as many wrong facts as right ones. A policy answers too little or too much. Which of these a reward
  prefers depends on its measure: F0.5 the narrow relation, F1 the wide one (for questions of one hop, F1 is
  0.63 with the first and 0.83 with the second).
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
KEPT = 0.5  # of the facts, by a narrow relation beside a right one
WRONG = 0.5  # facts for each right one, in a wide relation beside a narrow one

_ENDINGS = ("", "_recorded")


class _Names(NamedTuple):
    """What a relation of the small world is replaced by.

    Attributes:
        gold: the one in gold paths: the right one, or the wide one if none is right.
        wide: whether the other one is.
    """

    gold: str
    other: str
    wide: bool


def generate_overlapping_world(
    seed: int, sizes: dict[str, int], kg: str, *, exact: bool = True
) -> tuple[World, Splits]:
    """The world, and questions with the answers that the small world has.

    Args:
        sizes, kg: see `generate_questions`.
        exact: whether one of two relations is right. If none is, gold paths have the wide one, which leads to
            all answers and to others.
    """
    name = "world-overlapping" if exact else "world-inexact"
    world, rng = generate_world(seed, SIZE), random.Random(f"{name}/{seed}")
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
    replaced = _overlapping if exact else _inexact
    triples = [
        triple for relation, stated in facts.items() for triple in replaced(stated, names[relation], rng)
    ]
    return World(tuple(dict.fromkeys(triples)), world.types), splits.map(lambda one: _renamed(one, names))


def _names(relation: str, rng: random.Random) -> _Names:
    gold, other = rng.sample([relation + ending for ending in _ENDINGS], len(_ENDINGS))
    return _Names(gold, other, wide=rng.random() < 0.5)


def _overlapping(stated: Sequence[Triple], names: _Names, rng: random.Random) -> Iterator[Triple]:
    tails = [tail for _, _, tail in stated]
    for head, _, tail in stated:
        yield head, names.gold, tail
        if names.wide or rng.random() < KEPT:
            yield head, names.other, tail
        if names.wide and (wrong := rng.choice(tails)) != head:
            yield head, names.other, wrong


def _inexact(stated: Sequence[Triple], names: _Names, rng: random.Random) -> Iterator[Triple]:
    tails = [tail for _, _, tail in stated]
    by_head, by_tail = _grouped(stated, 0), _grouped(stated, 2)
    # On the side where nodes have more facts: on the other one, most have a single fact in any case.
    for facts in by_head if len(by_head) < len(by_tail) else by_tail:
        head, _, tail = rng.choice(facts)
        yield head, names.other, tail
    for head, _, tail in stated:
        yield head, names.gold, tail
        if rng.random() < WRONG and (wrong := rng.choice(tails)) != head:
            yield head, names.gold, wrong


def _grouped(stated: Sequence[Triple], end: int) -> list[list[Triple]]:
    """Facts with the same head (0) or tail (2)."""
    found: defaultdict[str, list[Triple]] = defaultdict(list)
    for triple in stated:
        found[triple[end]].append(triple)
    return list(found.values())


def _renamed(question: Question, names: dict[str, _Names]) -> Question:
    path = question.path or ()
    return replace(question, path=tuple(replace(hop, relation=names[hop.relation].gold) for hop in path))

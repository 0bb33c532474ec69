"""Generates any number of questions of every operation, reproducible by seed.

Some relations and shapes of forms are reserved for testing, by GrailQA's levels (Gu et al. 2021,
section 3): a reserved relation makes a question zero-shot, a reserved shape makes it compositional.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace

from kbqa.datasets.generalisation import Level, with_levels
from kbqa.datasets.splits import Splits
from kbqa.datasets.world.asking import Asker
from kbqa.datasets.world.facts import Facts, generate_facts
from kbqa.datasets.world.operations import OPERATIONS
from kbqa.datasets.world.vocabulary import WORLD
from kbqa.logical_forms.algebra import Expression, canonical, relations
from kbqa.logical_forms.s_expression import print_s_expression
from kbqa.trajectory import Question

# The entities, values and times in the text of a form.
_NAMED = re.compile(r"world:m\.\w+|[^\s()]+\^\^[^\s()]+|(?:NOW|\d{4}(?:-\d\d){0,2})(?=\))")

ASKED = tuple(name for name in OPERATIONS if name != "boolean")
"""The operations that are asked about. KG-R1 and KBQA-R1 have no way to say yes or no."""

_PATIENCE = 200  # tries for a level, before any other level is accepted
# Levels of the test questions, in turn; other splits are i.i.d.
_LEVELS = (Level.IID, Level.COMPOSITIONAL, Level.IID, Level.ZERO_SHOT)
_RESERVED_LINKS, _RESERVED_QUANTITIES = 3, 2
_RESERVED_SHAPES = 0.15


def generate_world_all(
    seed: int, sizes: Mapping[str, int], kg: str, size: float = 1.0
) -> tuple[Facts, Splits]:
    """Generate a graph, and questions about it in equal parts of each operation.

    Args:
        sizes: number of questions of each split.
        size: of the graph; 1 is about 2,400 entities.

    Raises:
        DatasetError: the world does not have enough questions.
    """
    facts = generate_facts(WORLD, random.Random(f"world-all/{seed}"), size)
    asking = _Levelled(facts, seed, kg)
    order = ("cold_start", "train", "validation", "test")
    splits = Splits(*(asking.split(split, sizes[split]) for split in order))
    training = (*splits.cold_start, *splits.train)
    held_out = {split: with_levels(training, getattr(splits, split)) for split in ("validation", "test")}
    return facts, replace(splits, **held_out)


class _Levelled:
    """Asks questions by level of generalisation."""

    def __init__(self, facts: Facts, seed: int, kg: str) -> None:
        self._seed = seed
        rng = random.Random(f"world-all/questions/{seed}")
        self._asker = Asker(facts, kg, rng)
        # Links with several kinds of tails are not reserved: they are few, and `type` questions need them.
        single = [link for link in WORLD.links if len(link.tails) == 1]
        links = [link.name for link in rng.sample(single, _RESERVED_LINKS)]
        valued = [quantity.name for quantity in rng.sample(WORLD.quantities, _RESERVED_QUANTITIES)]
        self._reserved = {WORLD.iri(name) for name in (*links, *valued)}

    def split(self, split: str, size: int) -> tuple[Question, ...]:
        questions = []
        for number in range(size):
            operation = ASKED[number % len(ASKED)]
            level = _LEVELS[number // len(ASKED) % len(_LEVELS)] if split == "test" else Level.IID
            questions.append(self._ask(f"{split}-{number:05}", operation, level))
        return tuple(questions)

    def _ask(self, id_: str, operation: str, level: Level) -> Question:
        """A question of that level, or of any level if it is rare; for i.i.d. always of that level."""

        def is_wanted(form: Expression, tries: int) -> bool:
            return self._level(form) == level or (level != Level.IID and tries > _PATIENCE)

        return self._asker.ask(id_, operation, is_wanted)

    def _level(self, form: Expression) -> Level:
        """The level for which a form is reserved."""
        if not self._reserved.isdisjoint(relations(form)):
            return Level.ZERO_SHOT
        shape = _NAMED.sub("*", print_s_expression(canonical(form)))
        draw = random.Random(f"{self._seed}/{shape}").random()
        return Level.COMPOSITIONAL if draw < _RESERVED_SHAPES else Level.IID

"""Questions in splits."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbqa.trajectory import Hop, Question


@dataclass(frozen=True, slots=True)
class Splits:
    """Disjoint by (topic entity, relation path).

    Attributes:
        cold_start: questions whose gold paths the cold start may read.
        train: questions of which reinforcement learning reads text and answers alone.
        validation: chooses the best cold start.
        test: held out.
    """

    cold_start: tuple[Question, ...]
    train: tuple[Question, ...]
    validation: tuple[Question, ...]
    test: tuple[Question, ...]

    def only(self, suits: Callable[[Question], bool]) -> Splits:
        """The same splits without the questions that do not suit."""
        parts = (self.cold_start, self.train, self.validation, self.test)
        return Splits(*(tuple(filter(suits, part)) for part in parts))


def split_by_path(
    questions: Sequence[Question], seed: int, *, cold_start: int, validation: int, test: int
) -> Splits:
    """Split whole groups of (topic entity, relation path), so that no paraphrase leaks.

    Args:
        cold_start, validation, test: questions wanted; a split may exceed its number by
            less than one group. Train is what remains.
    """
    groups: dict[tuple[tuple[str, ...], tuple[Hop, ...]], list[Question]] = defaultdict(list)
    for question in questions:
        groups[question.topic_entities, question.path].append(question)
    pool = list(groups.values())
    random.Random(f"split/{seed}").shuffle(pool)

    def take(count: int) -> tuple[Question, ...]:
        taken: list[Question] = []
        while pool and len(taken) < count:
            taken.extend(pool.pop())
        return tuple(taken)

    held_out, chosen, demonstrated = take(test), take(validation), take(cold_start)
    return Splits(demonstrated, tuple(q for group in pool for q in group), chosen, held_out)

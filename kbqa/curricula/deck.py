"""The endless sequence of training questions, by position, the same for the same seed.

A position determines its question, which makes a run repeatable: a request that is lost or undone is
asked for again by its position alone.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from kbqa.curricula.balance import quotas
from kbqa.errors import RunError
from kbqa.trajectory import Question


class Deck:
    """A deck in which every epoch shows each question once, in an order of its own."""

    def __init__(self, questions: Sequence[Question], seed: int | str) -> None:
        if not questions:
            raise RunError("the data set has no training questions")
        self._questions, self._seed = questions, seed
        self._epoch, self._order = -1, list(questions)

    def __getitem__(self, position: int) -> Question:
        epoch, index = divmod(position, len(self._questions))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = random.Random(f"deck/{self._seed}/{epoch}").sample(
                self._questions, len(self._questions)
            )
        return self._order[index]


class BalancedDeck:
    """A deck in which every epoch has as many positions as there are questions, and each kind its quota.

    The questions of a kind are repeated evenly across epochs: none is shown again before all others of its
    kind were shown.

    Args:
        kind: gives the kind of a question.
        strength: see `kbqa.curricula.balance.quotas`.
    """

    def __init__(
        self, questions: Sequence[Question], seed: int, kind: Callable[[Question], str], strength: float = 1.0
    ) -> None:
        kinds: defaultdict[str, list[Question]] = defaultdict(list)
        for question in questions:
            kinds[kind(question)].append(question)
        if not kinds:
            raise RunError("the data set has no training questions")
        counts = {name: len(members) for name, members in kinds.items()}
        self._quotas = quotas(counts, len(questions), strength)
        self._decks = {name: Deck(members, f"{seed}/{name}") for name, members in kinds.items()}
        self._length, self._seed = len(questions), seed
        self._epoch = -1
        self._order: list[tuple[str, int]] = []  # kind, and position in its own deck

    def __getitem__(self, position: int) -> Question:
        epoch, index = divmod(position, self._length)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = [
                (name, epoch * quota + drawn)
                for name, quota in self._quotas.items()
                for drawn in range(quota)
            ]
            random.Random(f"kinds/{self._seed}/{epoch}").shuffle(self._order)
        name, at = self._order[index]
        return self._decks[name][at]

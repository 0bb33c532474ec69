"""The endless sequence of training questions, by position, the same for the same seed.

A position determines its question, which makes a run repeatable: a request that is lost or undone is
asked for again by its position alone.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from kbqa.curricula.balance import quotas
from kbqa.curricula.course import Questions
from kbqa.errors import RunError
from kbqa.trajectory import Question

# Epochs whose orders are kept: a deck within another is asked for several epochs alternately.
_KEPT = 4


class Deck:
    """A deck in which every epoch shows each question once, in an order of its own."""

    def __init__(self, questions: Sequence[Question], seed: int | str) -> None:
        if not questions:
            raise RunError("the data set has no training questions")
        self._questions, self._seed = questions, seed
        self._order = lru_cache(_KEPT)(self._shuffled)

    def __getitem__(self, position: int) -> Question:
        epoch, index = divmod(position, len(self._questions))
        return self._order(epoch)[index]

    def _shuffled(self, epoch: int) -> list[Question]:
        rng = random.Random(f"deck/{self._seed}/{epoch}")
        return rng.sample(self._questions, len(self._questions))


class JointDeck:
    """A deck of several decks: in every epoch, each has its quota of the positions.

    The questions of a deck continue from epoch to epoch: of a `Deck`, none is shown again before all others
    were shown.

    Args:
        decks: by name.
        quotas: positions of each deck in an epoch.
    """

    def __init__(self, decks: Mapping[str, Questions], quotas: Mapping[str, int], seed: int | str) -> None:
        self._decks, self._quotas, self._seed = decks, quotas, seed
        self._length = sum(quotas.values())
        self._order = lru_cache(_KEPT)(self._shuffled)

    def __getitem__(self, position: int) -> Question:
        epoch, index = divmod(position, self._length)
        name, at = self._order(epoch)[index]
        return self._decks[name][at]

    def _shuffled(self, epoch: int) -> list[tuple[str, int]]:
        """The name of a deck, and the position in it, for each position of an epoch."""
        order = [
            (name, epoch * quota + drawn) for name, quota in self._quotas.items() for drawn in range(quota)
        ]
        random.Random(f"kinds/{self._seed}/{epoch}").shuffle(order)
        return order


class BalancedDeck(JointDeck):
    """A deck in which every epoch has as many positions as there are questions, and each kind its quota.

    Args:
        kind: gives the kind of a question.
        strength: see `kbqa.curricula.balance.quotas`.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        seed: int | str,
        kind: Callable[[Question], str],
        strength: float = 1.0,
    ) -> None:
        kinds = _grouped(questions, kind)
        counts = {name: len(members) for name, members in kinds.items()}
        decks = {name: Deck(members, f"{seed}/{name}") for name, members in kinds.items()}
        super().__init__(decks, quotas(counts, len(questions), strength), seed)


class MixedDeck(JointDeck):
    """A deck in which every epoch has as many positions as there are questions, and each part of a mixture
    its share of them.

    Args:
        shares: by part; those of parts without questions go to the others.
        deck: makes the deck of a part from its questions and a seed.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        seed: int | str,
        shares: Mapping[str, float],
        deck: Callable[[Sequence[Question], str], Questions] = Deck,
    ) -> None:
        parts = _grouped(questions, lambda question: question.part)
        decks = {name: deck(members, f"{seed}/{name}") for name, members in parts.items()}
        asked = {name: shares[name] for name in parts}
        super().__init__(decks, quotas(asked, len(questions), strength=0.0), seed)


def _grouped(
    questions: Sequence[Question], name: Callable[[Question], str]
) -> Mapping[str, Sequence[Question]]:
    if not questions:
        raise RunError("the data set has no training questions")
    groups: defaultdict[str, list[Question]] = defaultdict(list)
    for question in questions:
        groups[name(question)].append(question)
    return groups

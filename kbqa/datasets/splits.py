"""Splits of questions."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest

from kbqa.errors import DatasetError
from kbqa.trajectory import Question


@dataclass(frozen=True, slots=True)
class Splits:
    """Splits: disjoint, also by (topic entity, relation path), unless the set's own split is not.

    If the training set is a whole published file, the questions of the cold start are among it. The parts of
    a mixture take turns (`in_turns`).

    Attributes:
        cold_start: questions whose gold paths the cold start may read.
        train: for reinforcement learning, which reads only text and answers.
        validation: for selecting the best cold start.
        test: held out.
    """

    cold_start: tuple[Question, ...]
    train: tuple[Question, ...]
    validation: tuple[Question, ...]
    test: tuple[Question, ...]

    def only(self, suits: Callable[[Question], bool]) -> Splits:
        """The splits restricted to the questions that suit."""
        parts = (self.cold_start, self.train, self.validation, self.test)
        return Splits(*(in_turns(filter(suits, part)) for part in parts))

    def with_validation(self, count: int, seed: int) -> Splits:
        """The splits with a validation set of `count` questions taken out of the training set."""
        chosen = random.Random(f"validation/{seed}").sample(self.train, min(count, len(self.train)))
        ids = {question.id for question in chosen}
        cold_start, train = (
            tuple(question for question in part if question.id not in ids)
            for part in (self.cold_start, self.train)
        )
        return Splits(cold_start, train, in_turns(chosen), self.test)

    def map(self, change: Callable[[Question], Question]) -> Splits:
        """The splits with every question changed."""
        parts = (self.cold_start, self.train, self.validation, self.test)
        return Splits(*(tuple(map(change, part)) for part in parts))

    def named(self, split: str) -> tuple[Question, ...]:
        """The questions of a split, such as `test`.

        Raises:
            DatasetError: there is no split with this name.
        """
        known = [field.name for field in fields(self)]
        if split not in known:
            raise DatasetError(f'there is no split "{split}" (there are: {", ".join(known)})')
        questions: tuple[Question, ...] = getattr(self, split)
        return questions

    @property
    def all(self) -> tuple[Question, ...]:
        """The questions of all splits, each once."""
        trained = {question.id for question in self.train}
        apart = (question for question in self.cold_start if question.id not in trained)
        return (*apart, *self.train, *self.validation, *self.test)


def in_turns(questions: Iterable[Question]) -> tuple[Question, ...]:
    """The questions in an order in which the parts of a mixture take turns.

    The first N questions are then equally many of every part, as far as it has enough. The order within a
    part stays, and with it that of a data set that is not a mixture.
    """
    turns = zip_longest(*_by_part(questions).values())
    return tuple(question for turn in turns for question in turn if question is not None)


def spread(questions: Sequence[Question], most: int | None) -> tuple[Question, ...]:
    """At most `most` questions, evenly spaced, since a test file may be sorted by hops.

    Those of a mixture are equally many of every part, as far as it has enough, and evenly spaced within it.
    """
    counts = Counter(question.part for question in in_turns(questions)[:most])
    return in_turns(
        members[place * len(members) // counts[part]]
        for part, members in _by_part(questions).items()
        for place in range(counts[part])
    )


def _by_part(questions: Iterable[Question]) -> dict[str, list[Question]]:
    parts: defaultdict[str, list[Question]] = defaultdict(list)
    for question in questions:
        parts[question.part].append(question)
    return parts


def split_by_path(
    questions: Sequence[Question], seed: int, *, cold_start: int, validation: int, test: int
) -> Splits:
    """Split whole groups of (topic entity, relation path), so that no paraphrase leaks.

    Args:
        cold_start, validation, test: numbers of questions; a split may exceed its number by
            less than one group. Train gets the remaining questions. Questions without a gold
            path or form are not used for the cold start.
    """
    groups: dict[Hashable, list[Question]] = defaultdict(list)
    for question in questions:
        groups[question.topic_entities, question.path].append(question)
    return _split(list(groups.values()), seed, cold_start, validation, test)


def split_at_random(
    questions: Sequence[Question], seed: int, *, cold_start: int, validation: int, test: int
) -> Splits:
    """Split single questions; paraphrases may fall into different splits."""
    return _split([[question] for question in questions], seed, cold_start, validation, test)


def _split(groups: list[list[Question]], seed: int, cold_start: int, validation: int, test: int) -> Splits:
    random.Random(f"split/{seed}").shuffle(groups)
    held_out, pool = _take(groups, test)
    chosen, pool = _take(pool, validation)
    shown = [group for group in pool if all(q.path or q.form for q in group)]
    hidden = [group for group in pool if not all(q.path or q.form for q in group)]
    demonstrated, shown = _take(shown, cold_start)
    trained = shown + hidden
    return Splits(demonstrated, tuple(q for group in trained for q in group), chosen, held_out)


def _take(groups: list[list[Question]], count: int) -> tuple[tuple[Question, ...], list[list[Question]]]:
    """At least `count` questions from the end, and the groups that remain."""
    taken: list[Question] = []
    rest = len(groups)
    while rest and len(taken) < count:
        rest -= 1
        taken.extend(groups[rest])
    return tuple(taken), groups[:rest]

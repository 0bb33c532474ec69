"""The union of the answers of N runs of a question (KG-R1, 4.1), with the runs behind each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kbqa.answers import normalise
from kbqa.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class UnitedAnswer:
    """An answer that at least one run gave.

    Attributes:
        text: as the first of these runs wrote it.
        ids: distinct ids of the retrieved entities that the text stands for, in the order seen.
        runs: numbers of the runs that gave the answer, from 0, ascending.
        of: number of all runs, including those without an answer.
    """

    text: str
    ids: tuple[str, ...]
    runs: tuple[int, ...]
    of: int

    @property
    def share(self) -> float:
        """The share of runs that gave the answer."""
        return len(self.runs) / self.of

    @property
    def support(self) -> str:
        """The share as a fraction, such as `2/3`."""
        return f"{len(self.runs)}/{self.of}"


@dataclass(slots=True)
class _Given:
    text: str
    runs: list[int] = field(default_factory=list)
    ids: dict[str, None] = field(default_factory=dict)


def unite(runs: Sequence[Trajectory]) -> list[UnitedAnswer]:
    """Merge the runs' answers, sorted by number of runs, then by first occurrence.

    Answers are the same if their normalised texts are equal, as in the measures. Any measure over
    the texts in this order is the measure of the union.
    """
    found: dict[str, _Given] = {}
    for number, run in enumerate(runs):
        for text, ids in zip(run.answers, run.answer_ids, strict=True):
            key = normalise(text)
            if not key:
                continue
            given = found.setdefault(key, _Given(text))
            if number not in given.runs:
                given.runs.append(number)
            given.ids |= dict.fromkeys(ids)
    united = [UnitedAnswer(g.text, tuple(g.ids), tuple(g.runs), len(runs)) for g in found.values()]
    return sorted(united, key=lambda answer: -len(answer.runs))

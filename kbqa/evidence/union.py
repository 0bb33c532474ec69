"""The union of what N runs of a question answered (KG-R1, 4.1), with the runs behind each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kbqa.answers import normalise
from kbqa.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class UnitedAnswer:
    """An answer that at least one run gave.

    Attributes:
        text: as the first of those runs wrote it.
        ids: of the seen entities that those runs meant by it, unique, in the order seen.
        runs: their numbers, from 0, ascending.
        of: how many runs there were, those without an answer included.
    """

    text: str
    ids: tuple[str, ...]
    runs: tuple[int, ...]
    of: int

    @property
    def share(self) -> float:
        """Of the runs, those that gave it."""
        return len(self.runs) / self.of

    @property
    def support(self) -> str:
        """The same as a fraction, such as `2/3`."""
        return f"{len(self.runs)}/{self.of}"


@dataclass(slots=True)
class _Given:
    text: str
    runs: list[int] = field(default_factory=list)
    ids: dict[str, None] = field(default_factory=dict)


def unite(runs: Sequence[Trajectory]) -> list[UnitedAnswer]:
    """The union of the runs' answers: what most runs gave comes first, then what was given first.

    Runs agree where the normalised text of their answers is the same, as measures compare it. Of
    the texts in this order any measure over answers is the measure of the union.
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

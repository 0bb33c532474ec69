"""The judge port, and the judges that a recipe may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from kbqa.gold import Names
from kbqa.parts import Parts

NAMELESS: Names = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of a judge.

    Attributes:
        correct: whether the answer agrees with the gold answers.
        justification: the reason, in words.
        found: for each gold answer, whether the answer contains it (KG-R1's binary vector).
    """

    correct: bool
    justification: str
    found: tuple[bool, ...]


class Judge(Protocol):
    """Compares an answer with the gold answers of a question."""

    def verdict(
        self, question: str, gold: Sequence[str], answers: Sequence[str], names: Names = NAMELESS
    ) -> Verdict:
        """Judge the answers to a question.

        Args:
            names: other names of gold answers and answers, such as the label of an id.

        Raises:
            JudgeUnavailableError: no verdict was reached, which does not mean "incorrect".
        """
        ...


JUDGES: Parts[Judge] = Parts("judges")

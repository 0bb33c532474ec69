"""The judge port, and the judges that a recipe may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kbqa.parts import Parts


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says.

    Attributes:
        correct: whether the answer says what the gold answers say.
        justification: why, in words.
        found: for each gold answer, whether the answer contains it (KG-R1's binary vector).
    """

    correct: bool
    justification: str
    found: tuple[bool, ...]


class Judge(Protocol):
    """Compares an answer with the gold answers of a question."""

    def verdict(self, question: str, gold: Sequence[str], answers: Sequence[str]) -> Verdict:
        """Judge.

        Raises:
            JudgeUnavailableError: no verdict was reached. That is never "incorrect".
        """
        ...


JUDGES: Parts[Judge] = Parts("judges")

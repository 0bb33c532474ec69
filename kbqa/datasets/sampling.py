"""Random samples of a split, on which papers measure: at random, or equally many questions of each kind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kbqa.curricula import Stratum, balanced, stratum
from kbqa.errors import ConfigurationError
from kbqa.trajectory import Question

_KINDS = ("random", *get_args(Stratum))


@dataclass(frozen=True, slots=True)
class Sample:
    """At most `count` questions.

    Attributes:
        by: `random`: every question is as likely as any other (KG-R1, appendix B.1). A stratum: equally
            many of each kind, as far as there are enough (KnowCoder-A1, appendix A.1, by type).
    """

    by: Literal["random"] | Stratum
    count: int

    @classmethod
    def read(cls, text: str) -> Sample:
        """Read a sample as it is written on the command line.

        Raises:
            ConfigurationError: it is not KIND:N.

        >>> Sample.read("level:600")
        Sample(by='level', count=600)
        """
        by, _, count = text.partition(":")
        if by not in _KINDS or not count.isdecimal() or int(count) == 0:
            raise ConfigurationError(
                f'--sample: "{text}" is not KIND:N, such as random:600; KIND is {", ".join(_KINDS)}'
            )
        return cls(by, int(count))  # type: ignore[arg-type]

    def of(self, questions: Sequence[Question], seed: int) -> tuple[Question, ...]:
        """A sample of questions, in their order; the same seed draws the same."""
        rng = random.Random(f"sample/{seed}")
        if self.by == "random":
            chosen = rng.sample(questions, min(self.count, len(questions)))
        else:
            by = self.by
            chosen = balanced(questions, lambda question: stratum(question, by), self.count, rng)
        drawn = {question.id for question in chosen}
        return tuple(question for question in questions if question.id in drawn)

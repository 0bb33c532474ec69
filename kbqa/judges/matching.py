"""A judge without a model: answers are compared after normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.answers import answer_set, normalise
from kbqa.gold import Names
from kbqa.judges.base import JUDGES, NAMELESS, Verdict


@JUDGES.register("matching")
@dataclass(frozen=True, slots=True)
class MatchingJudge:
    """Accepts answers that equal the gold answers as a set."""

    def verdict(
        self, question: str, gold: Sequence[str], answers: Sequence[str], names: Names = NAMELESS
    ) -> Verdict:
        given, wanted = answer_set(answers), answer_set(gold)
        found = tuple(normalise(one) in given for one in gold)
        missing, surplus = sorted(wanted - given), sorted(given - wanted)
        if not missing and not surplus:
            return Verdict(True, "the answers are the gold answers", found)
        faults = [f"missing: {', '.join(missing)}"] if missing else []
        faults += [f"not gold: {', '.join(surplus)}"] if surplus else []
        return Verdict(False, "; ".join(faults), found)

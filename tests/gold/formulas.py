"""The rewards of the papers, written down from their formulas and apart from `kbqa.rewards`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.gold.scripts import Plan


def f_beta(given: set[str], golds: Iterable[Sequence[str]], beta: float = 1.0) -> float:
    """F_beta of the answers given, for the gold set for which it is highest; case does not count."""
    said = {answer.casefold() for answer in given}
    sets = [{answer.casefold() for answer in gold} for gold in golds]
    return max(_f_beta(len(said & gold), len(said), len(gold), beta) for gold in sets)


def _f_beta(right: int, given: int, gold: int, beta: float) -> float:
    if not right:
        return 0.0
    precision, recall = right / given, right / gold
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def kg_r1(plan: Plan, f1: float, *, w_f1: float, w_retrieval: float) -> float:
    """Eq. 1 and 2: format and query of each turn, the answer, F1 and whether a gold answer was retrieved."""
    queries = plan.turns - 1
    return queries * 0.5 + (queries - plan.failed) * 0.5 + (0.5 + 0.5) + w_f1 * f1 + w_retrieval * plan.finds


def kbqa_r1(f1: float) -> float:
    """Eq. 2: F1, and 0.1 for the format if F1 is above 0."""
    return f1 + 0.1 * (f1 > 0)


def knowcoder_a1(f_half: float) -> float:
    """Eq. 9 and 10 in phase 1: the answer box, and F_0.5."""
    return min(0.1 + f_half, 1.0)


def learning_to_refine(plan: Plan, correct: bool) -> float:
    """Section 3.3.1, without an error."""
    return 1 + (0.5 if correct else -0.2) - 0.02 * plan.turns

"""Curricula: which questions a run trains on, how often, and when that changes."""

from kbqa.curricula.balance import balanced, quotas
from kbqa.curricula.course import Course, Stage, Until
from kbqa.curricula.deck import BalancedDeck, Deck, MixedDeck
from kbqa.curricula.patterns import Abstraction, pattern, representatives
from kbqa.curricula.strata import Stratum, Tier, Tiers, reasoning_steps, stratum

__all__ = [
    "Abstraction",
    "BalancedDeck",
    "Course",
    "Deck",
    "MixedDeck",
    "Stage",
    "Stratum",
    "Tier",
    "Tiers",
    "Until",
    "balanced",
    "pattern",
    "quotas",
    "reasoning_steps",
    "representatives",
    "stratum",
]

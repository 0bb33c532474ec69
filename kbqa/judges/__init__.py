"""Judges, which decide whether an answer in words agrees with the gold answers."""

from __future__ import annotations

from kbqa.judges.base import JUDGES, Judge, Verdict
from kbqa.judges.chat import ChatJudge
from kbqa.judges.matching import MatchingJudge

__all__ = ["JUDGES", "ChatJudge", "Judge", "MatchingJudge", "Verdict"]

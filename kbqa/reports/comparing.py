"""Compares systems by the questions that their runs were both asked, and shows where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from kbqa.evaluation.significance import student
from kbqa.reports.answers import Answer, Answers, minus
from kbqa.reports.entries import Entry, System
from kbqa.reports.views import ComparisonView, PairView, SideView, TellingsView, TellingView

_MOST = 12  # questions of two policies that are shown, half of them won and half lost


class Side(NamedTuple):
    """A policy in a comparison."""

    name: str
    answers: Answers


def compared(ours: int, theirs: int, systems: Sequence[System]) -> ComparisonView | None:
    """Two systems by their numbers; None if no two of their runs were asked the same questions."""
    pairs = []
    for one, other in _paired(systems[ours], systems[theirs]):
        assert one.final is not None, "_paired"
        assert other.final is not None, "_paired"
        difference = minus(one.final, other.final)
        if difference is not None:
            pairs.append(PairView(ours=one.place, theirs=other.place, difference=difference))
    if not pairs:
        return None
    means = [pair.difference.mean for pair in pairs]
    over_runs = student(means)
    single = pairs[0].difference
    low, high = (single.low, single.high) if over_runs is None else over_runs
    return ComparisonView(ours=ours, theirs=theirs, pairs=pairs, mean=fmean(means), low=low, high=high)


def _paired(ours: Sequence[Entry], theirs: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    """Runs with answers: those of a seed that both systems have, else in their order."""
    mine, yours = ([one for one in side if one.final is not None] for side in (ours, theirs))
    by_seed = {one.view.seed: one for one in reversed(yours)}
    same = {
        one.view.seed: (one, by_seed[one.view.seed]) for one in reversed(mine) if one.view.seed in by_seed
    }
    return [same[seed] for seed in sorted(same)] or list(zip(mine, yours, strict=False))


def telling(title: str, ours: Side, theirs: Side) -> TellingsView:
    """The questions that only one of two answers exactly."""
    shared = list(ours.answers.shared(theirs.answers))
    won = [pair for pair in shared if pair[0].is_right and not pair[1].is_right]
    lost = [pair for pair in shared if pair[1].is_right and not pair[0].is_right]
    half = _MOST // 2
    chosen = [
        *_spread(won)[: max(half, _MOST - len(lost))],
        *_spread(lost)[: max(half, _MOST - len(won))],
    ]
    return TellingsView(
        title=title,
        ours=ours.name,
        theirs=theirs.name,
        won=len(won),
        lost=len(lost),
        questions=[
            TellingView(question=one.question, gold=one.gold, ours=_side(one), theirs=_side(other))
            for one, other in chosen
        ],
    )


def _spread(pairs: Sequence[tuple[Answer, Answer]]) -> list[tuple[Answer, Answer]]:
    """Those first that differ most, and of each cluster one, before a second one comes."""
    seen: Counter[str] = Counter()
    rounds: list[tuple[int, tuple[Answer, Answer]]] = []
    for pair in sorted(pairs, key=lambda pair: -abs(pair[0].f1 - pair[1].f1)):
        rounds.append((seen[pair[0].cluster], pair))
        seen[pair[0].cluster] += 1
    return [pair for _, pair in sorted(rounds, key=lambda entry: entry[0])]


def _side(answer: Answer) -> SideView:
    return SideView(answers=answer.answers, f1=answer.f1, status=answer.status, turns=answer.turns)

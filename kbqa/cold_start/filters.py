"""Which episodes become demonstrations, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kbqa.answers import f1, hit_any, normalise
from kbqa.cold_start.demonstrations import Played, is_right
from kbqa.kg.actions import Success, named

REFERENCED_F1 = 0.9
"""The F1 that a referenced rollout has to exceed (KBQA-R1, table VII)."""


class Rejection(StrEnum):
    """Why an episode was rejected; leaks are further reasons (`kbqa.cold_start.leaks`)."""

    UNPLAYABLE = "unplayable"
    """The question has no gold program that leads to its answers within the budget."""
    UNANSWERED = "unanswered"
    INCORRECT = "incorrect"
    UNGROUNDED = "ungrounded"
    """An answer that no observation showed."""
    MALFORMED = "malformed"
    """A turn that breaks the dialect's format."""
    DUPLICATE = "duplicate"
    """The question has a demonstration with the same turns."""


Filter = Callable[[Played], Rejection | None]


def outcome(played: Played) -> Rejection | None:
    """KnowCoder-A1's filter (4.2.1): correct, and every answer grounded in the observation history.

    Its exact match "ensures that at least one of the predicted answers appears in the gold answers",
    which is usually called Hit.
    """
    if played.answers is None:
        return Rejection.UNANSWERED
    if not hit_any(_texts(played), played.question.answers):
        return Rejection.INCORRECT
    return None if _grounded(played) else Rejection.UNGROUNDED


def referenced(played: Played) -> Rejection | None:
    """KBQA-R1's filter (IV-B1, step 3): F1 above 0.9, and every turn well formed."""
    gold = played.question.answers
    if played.answers is None:
        return Rejection.UNANSWERED
    if not max(f1(_texts(played), gold), f1(_ids(played), gold)) > REFERENCED_F1:
        return Rejection.INCORRECT
    return None if all(turn.well_formed for turn in played.turns) else Rejection.MALFORMED


def exact(played: Played) -> Rejection | None:
    """The filter for gold programs: exactly the gold answers, and every turn well formed."""
    if played.answers is None:
        return Rejection.UNANSWERED
    if not is_right(played):
        return Rejection.INCORRECT
    return None if all(turn.well_formed for turn in played.turns) else Rejection.MALFORMED


def score(played: Played) -> float:
    """The F1 of an episode; 0 without answers."""
    return f1(_texts(played), played.question.answers)


def _texts(played: Played) -> list[str]:
    return [answer.text for answer in played.answers or ()]


def _ids(played: Played) -> list[str]:
    return [id_ for answer in played.answers or () for id_ in answer.ids]


def _grounded(played: Played) -> bool:
    results = [result for turn in played.turns for result in turn.results if isinstance(result, Success)]
    items = [item for result in results for item in named(result.items)]
    shown = {normalise(name) for item in items for name in (item.id, item.label)}
    history = normalise(" ".join(turn.observation for turn in played.turns))
    return all(
        answer.ids or normalise(answer.text) in shown or f" {normalise(answer.text)} " in f" {history} "
        for answer in played.answers or ()
    )

"""Episodes that say and retrieve what a test wants."""

from __future__ import annotations

from collections.abc import Sequence

from kbqa.trajectory import ExecutedAction, Status, Trajectory
from tests.unit.episodes import query, turn


def episode(
    *answers: str,
    queries: Sequence[ExecutedAction] = (),
    status: Status = Status.ANSWERED,
    ids: Sequence[Sequence[str]] | None = None,
) -> Trajectory:
    """A turn of 4 tokens for each query, after one token each that it read, and one for the answer."""
    count = len(queries) + (status is Status.ANSWERED)
    turns = [turn(5 * k + 1, 5 * k + 5, actions=queries[k : k + 1]) for k in range(count)]
    meant = tuple(tuple(one) for one in ids) if ids is not None else ((),) * len(answers)
    return Trajectory(tuple(range(5 * count)), tuple(turns), status, answers, meant)


FOUND = query(found=("Byron", "Annabella"))
EMPTY = query(code="KG_NO_RESULTS")
FAILED = query(code="KG_FORMAT_ERROR")

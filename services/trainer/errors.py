"""Which HTTP status each domain error has here."""

from __future__ import annotations

from kbqa.errors import (
    DatasetError,
    KbqaError,
    NoPolicyError,
    PolicyIntegrityError,
    RecipeError,
    RunError,
)
from services.page.trajectories import GroupNotFoundError


class RunNotFoundError(RunError):
    """No run of that id."""


class RunConflictError(RunError):
    """What is asked of a run does not go with its state, or with another run's."""


STATUS: dict[type[KbqaError], int] = {
    RecipeError: 422,
    DatasetError: 422,
    RunNotFoundError: 404,
    GroupNotFoundError: 404,
    RunConflictError: 409,
    RunError: 500,
    NoPolicyError: 409,
    PolicyIntegrityError: 500,
}

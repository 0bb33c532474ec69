"""The HTTP status of each domain error in this service."""

from __future__ import annotations

from kbqa.errors import (
    DatasetError,
    KbqaError,
    MachineTooSmallError,
    NoPolicyError,
    PlanError,
    PolicyIntegrityError,
    QueueUnavailableError,
    RecipeError,
    RecipeRefusedError,
    RunConflictError,
    RunError,
    RunNotFoundError,
)
from services.page.trajectories import GroupNotFoundError

STATUS: dict[type[KbqaError], int] = {
    RecipeError: 422,
    RecipeRefusedError: 403,
    PlanError: 422,
    MachineTooSmallError: 422,
    DatasetError: 422,
    RunNotFoundError: 404,
    GroupNotFoundError: 404,
    RunConflictError: 409,
    RunError: 500,
    QueueUnavailableError: 503,
    NoPolicyError: 409,
    PolicyIntegrityError: 500,
}

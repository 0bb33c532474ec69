"""Routes behind the page: figures, recipe and versions of a run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from kbqa.curves import figures_of, paper_of
from kbqa.errors import PolicyError
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.runs.directory import Runs


class FigureView(BaseModel):
    """See `kbqa.curves.Figure`."""

    title: str
    fields: list[str]
    source: str
    kind: str
    unit: str
    about: str


class RecipeView(BaseModel):
    """The recipe of a run.

    Attributes:
        paper: name of the paper that its reward comes from.
        figures: the figures of that paper.
        values: all values of the recipe, resolved.
    """

    run: str
    name: str
    paper: str
    figures: list[FigureView]
    values: dict[str, Any]


class VersionView(BaseModel):
    """A version of the run's policy in the store."""

    id: str
    number: int
    kind: str
    step: int
    created_at: str
    metrics: dict[str, float]
    promoted: bool


class VersionList(BaseModel):
    run: str
    versions: list[VersionView]


def records_router(runs: Runs, store: PolicyStore) -> APIRouter:
    """Routes that read the files of runs; all block, so they run in threads."""
    router = APIRouter(prefix="/v1/runs/{run}", tags=["runs"])

    @router.get("/recipe", summary="The recipe of a run, and the figures of its paper")
    def recipe(run: str) -> RecipeView:
        values = runs.get(run).read().recipe
        figures = figures_of(values["reward"]["name"])
        return RecipeView(
            run=run,
            name=values["name"],
            paper=paper_of(values["reward"]["name"]),
            figures=[FigureView.model_validate(asdict(figure)) for figure in figures],
            values=values,
        )

    @router.get("/versions", summary="Versions of the policy, newest first")
    def versions(run: str) -> VersionList:
        runs.get(run)
        promoted = _promoted(store)
        return VersionList(
            run=run,
            versions=[
                VersionView(
                    id=version.id,
                    number=version.number,
                    kind=version.manifest.kind,
                    step=version.manifest.step,
                    created_at=version.manifest.created_at,
                    metrics=version.manifest.metrics,
                    promoted=promoted is not None and (promoted.run, promoted.id) == (run, version.id),
                )
                for version in reversed(store.versions(run))
            ],
        )

    return router


def _promoted(store: PolicyStore) -> PolicyVersion | None:
    try:
        return store.promoted()
    except PolicyError:  # no version was promoted, or the promoted one is damaged
        return None

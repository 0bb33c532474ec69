"""`/v1/runs`: start, follow, stop, resume, promote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query

from kbqa.datasets import load_dataset
from kbqa.errors import RecipeError, RunConflictError
from kbqa.policy_store import PolicyStore
from kbqa.recipes import Recipe, load_recipe, recipe_from
from kbqa.recipes.reach import Reach
from kbqa.runs.directory import RunDirectory, Runs, read_json
from services.trainer.schemas import (
    MetricsPage,
    Promote,
    Promoted,
    Promotions,
    RunList,
    RunSummary,
    RunView,
    StartRun,
)
from services.trainer.supervisor import Supervisor

_HISTORY = 50  # records in a view
_READ = 500  # newest records that a view reads, enough to contain the latest step
_PHASES = ("rl", "cold_start", "base")  # phases whose version may be promoted, best first


def runs_router(
    runs: Runs,
    supervisor: Supervisor,
    store: PolicyStore,
    data: Path | None,
    reach: Reach,
    fit: Callable[[Recipe], Recipe],
) -> APIRouter:
    """Routes of the runs; all block, so they run in threads.

    Args:
        data: directory of data sets that are not generated.
        reach: what recipes of requests may name.
        fit: returns a recipe as it is trained here; see `kbqa.planning.guard.fitted`.
    """
    router = APIRouter(prefix="/v1/runs", tags=["runs"])

    @router.post("", status_code=201, summary="Start a run")
    def start(body: StartRun) -> RunView:
        recipe = _recipe(body)
        reach.require(recipe)
        load_dataset(body.dataset, body.seed, data)  # report errors of the data set now
        recipe = fit(recipe)
        return view(
            supervisor.begin(lambda: runs.create(recipe, body.dataset, body.limits, body.seed, body.name))
        )

    @router.get("", summary="All runs, oldest first")
    def index() -> RunList:
        return RunList(runs=[_summary(directory) for directory in runs.all()])

    @router.get("/{run}", summary="The state of a run")
    def show(run: str) -> RunView:
        return view(runs.get(run))

    @router.get("/{run}/metrics", summary="Records of steps and evaluations")
    def metrics(
        run: str,
        since: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int | None, Query(ge=1, le=10_000)] = None,
    ) -> MetricsPage:
        """Returns all records after `since`, or the first `limit` of them."""
        records = runs.get(run).records(since)[:limit]
        last = max((record["seq"] for record in records), default=since)
        return MetricsPage(run=run, last=last, records=records)

    @router.post("/{run}/stop", summary="Stop a run and save a checkpoint")
    def stop(run: str) -> RunView:
        directory = runs.get(run)
        supervisor.stop(directory)
        return view(directory)

    @router.post("/{run}/resume", summary="Resume a stopped or failed run")
    def resume(run: str) -> RunView:
        directory = runs.get(run)
        supervisor.resume(directory)
        return view(directory)

    @router.get("/{run}/promotions", summary="Versions of this run that have been promoted")
    def promotions(run: str) -> Promotions:
        """Oldest first. Only the latest 100 promotions of the policy store are remembered."""
        return Promotions(run=runs.get(run).id, versions=store.promotions(run))

    @router.post("/{run}/promote", summary="Promote a version of this run, so that it answers users")
    def promote(run: str, body: Promote | None = None) -> Promoted:
        directory = runs.get(run)
        version = body.version if body is not None and body.version is not None else _best(directory)
        if version is None:
            raise RunConflictError(f"run {run} has no evaluated version yet: wait, or give a version")
        return Promoted(run=run, version=store.promote(run, version).id)

    return router


def view(directory: RunDirectory) -> RunView:
    """A run as its files describe it."""
    record, progress = directory.read(), directory.progress()
    records = directory.newest_records(_READ)
    steps = [r for r in records if r["kind"] == "step"]
    results = progress.get("results", {})
    return RunView(
        id=record.id,
        state=record.state,
        phase=progress.get("phase", "prepare"),
        step=progress.get("step", 0),
        of=progress.get("of", 0),
        seconds=progress.get("seconds", 0.0),
        recipe=record.recipe["name"],
        dataset=record.dataset,
        seed=record.seed,
        created_at=record.created_at,
        restarts=record.restarts,
        device=results.get("device"),
        f1=results.get("f1", {}),
        f1_by_hops=results.get("f1_by_hops", {}),
        split=results.get("judged_by", {}).get("split", "test"),
        policy=_best(directory),
        latest=steps[-1] if steps else None,
        history=records[-_HISTORY:],
        groups=next((r["groups"] for r in reversed(steps) if "groups" in r), {}),
        alarms=results.get("alarms", {}),
        best=results.get("best"),
        ended=results.get("ended"),
        error=record.error,
        summary=read_json(directory.summary_path) or None,
    )


def _recipe(body: StartRun) -> Recipe:
    if isinstance(body.recipe, str):
        return load_recipe(body.recipe, body.overrides)
    if body.overrides:
        raise RecipeError(
            "overrides can only be used with a named recipe; put the values into the recipe instead"
        )
    return recipe_from(body.recipe, "recipe")


def _summary(directory: RunDirectory) -> RunSummary:
    record, progress = directory.read(), directory.progress()
    return RunSummary(
        id=record.id,
        state=record.state,
        phase=progress.get("phase", "prepare"),
        step=progress.get("step", 0),
        of=progress.get("of", 0),
        f1=progress.get("results", {}).get("f1", {}),
        dataset=record.dataset,
        recipe=record.recipe["name"],
        created_at=record.created_at,
    )


def _best(directory: RunDirectory) -> str | None:
    """The version of the furthest phase that was evaluated."""
    versions = directory.progress().get("results", {}).get("versions", {})
    return next((versions[phase] for phase in _PHASES if phase in versions), None)

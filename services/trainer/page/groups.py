"""Routes behind the page: figures, recipe and versions of a run, and the groups that its steps kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from statistics import fmean
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from kbqa.curves import PAPERS, figures_of
from kbqa.errors import PolicyError
from kbqa.policy_store import PolicyStore, PolicyVersion
from services.trainer.errors import GroupNotFoundError
from services.trainer.runs import Runs
from services.trainer.traces import TracedGroup, TracedStep, TracedSummary, Traces

Cursor = Annotated[str, Query(pattern=r"^\d{1,12}:\d{1,9}$")]


class FigureView(BaseModel):
    """See `kbqa.curves.Figure`."""

    title: str
    fields: list[str]
    source: str
    kind: str
    unit: str
    about: str


class RecipeView(BaseModel):
    """What a run was told.

    Attributes:
        paper, figures: what the paper of its reward is called, and plots.
        values: all resolved values.
    """

    run: str
    name: str
    paper: str
    figures: list[FigureView]
    values: dict[str, Any]


class VersionView(BaseModel):
    """A version of the policy that is in the store."""

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


class StepView(BaseModel):
    """A step whose groups were kept.

    Attributes:
        reward, f1: means over its groups.
        outcomes, statuses: numbers of groups and of episodes.
    """

    step: int
    version: str
    groups: int
    reward: float
    f1: float
    outcomes: dict[str, int]
    statuses: dict[str, int]


class StepList(BaseModel):
    run: str
    steps: list[StepView]


class GroupPage(BaseModel):
    """Groups, newest step first; ask for more with `cursor` = `next`, which is None at the end."""

    run: str
    groups: list[TracedSummary]
    next: str | None


def groups_router(runs: Runs, store: PolicyStore) -> APIRouter:
    """Routes that read what runs leave on the disk; all block, so they run in threads."""
    router = APIRouter(prefix="/v1/runs/{run}", tags=["runs"])

    @router.get("/recipe", summary="What a run was told, and the figures of its paper")
    def recipe(run: str) -> RecipeView:
        values = runs.get(run).read().recipe
        figures = figures_of(values["reward"]["name"])
        return RecipeView(
            run=run,
            name=values["name"],
            paper=PAPERS.get(values["reward"]["name"], values["reward"]["name"]),
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

    @router.get("/steps", summary="Steps whose groups can be looked at, oldest first")
    def steps(run: str) -> StepList:
        traces = runs.get(run).traces()
        return StepList(run=run, steps=[_view(header) for header in _headers(traces, traces.steps())])

    @router.get("/groups", summary="Groups that were kept, newest step first")
    def groups(
        run: str,
        step: Annotated[int | None, Query(ge=0)] = None,
        status: Annotated[str | None, Query(max_length=32)] = None,
        outcome: Annotated[str | None, Query(max_length=32)] = None,
        question: Annotated[str | None, Query(max_length=200)] = None,
        cursor: Cursor | None = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> GroupPage:
        """`status` is of any of a group's episodes; `question` is looked for in its text and id."""
        traces = runs.get(run).traces()
        newest = [s for s in reversed(traces.steps()) if step is None or s == step]
        after = tuple(map(int, cursor.split(":"))) if cursor else None
        if after is not None:
            newest = [s for s in newest if s <= after[0]]
        found: list[TracedSummary] = []
        for header in _headers(traces, newest):
            for index, group in enumerate(header.groups):
                seen = after is not None and header.step == after[0] and index < after[1]
                if seen or not _matches(group, status, outcome, question):
                    continue
                if len(found) == limit:
                    return GroupPage(run=run, groups=found, next=f"{header.step}:{index}")
                found.append(group)
        return GroupPage(run=run, groups=found, next=None)

    @router.get("/groups/{step}/{group}", summary="Everything that was said in a group")
    def group(
        run: str, step: Annotated[int, Path(ge=0)], group: Annotated[str, Path(max_length=200)]
    ) -> TracedGroup:
        found = runs.get(run).traces().group(step, group)
        if found is None:
            raise GroupNotFoundError(
                f"step {step} of run {run} has no group {group!r} any more: see GET /v1/runs/{run}/groups"
            )
        return found

    return router


def _promoted(store: PolicyStore) -> PolicyVersion | None:
    try:
        return store.promoted()
    except PolicyError:  # none was promoted, or what was is damaged
        return None


def _headers(traces: Traces, steps: list[int]) -> Iterator[TracedStep]:
    """Of those steps that are still there."""
    for step in steps:
        header = traces.step(step)
        if header is not None:
            yield header


def _view(header: TracedStep) -> StepView:
    groups = header.groups
    statuses: Counter[str] = Counter()
    for group in groups:
        statuses.update(group.statuses)
    return StepView(
        step=header.step,
        version=header.version,
        groups=len(groups),
        reward=fmean(group.reward for group in groups) if groups else 0.0,
        f1=fmean(group.f1 for group in groups) if groups else 0.0,
        outcomes=dict(Counter(group.outcome for group in groups)),
        statuses=dict(statuses),
    )


def _matches(group: TracedSummary, status: str | None, outcome: str | None, question: str | None) -> bool:
    wanted = "" if question is None else question.casefold()
    return (
        (status is None or status in group.statuses)
        and (outcome is None or outcome == group.outcome)
        and (wanted in group.question.casefold() or wanted in group.question_id.casefold())
    )

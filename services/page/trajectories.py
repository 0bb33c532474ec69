"""Routes that return the trajectories of a run; `trajectories.js` reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from kbqa.errors import RunError
from kbqa.runs.traces import TracedGroup, TracedStep, TracedSummary, Traces

Cursor = Annotated[str, Query(pattern=r"^\d{1,12}:\d{1,9}$")]


class GroupNotFoundError(RunError):
    """The step has no stored group with this id."""


class StepView(BaseModel):
    """A step whose groups are stored.

    Attributes:
        reward, f1: means over its groups.
        outcomes: number of groups by outcome.
        statuses: number of episodes by status.
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
    """Groups, newest step first. Pass `next` as `cursor` to get more; it is None at the end."""

    run: str
    groups: list[TracedSummary]
    next: str | None


def trajectories_router(traces_of: Callable[[str], Traces]) -> APIRouter:
    """Routes that read the files of runs; all block, so they run in threads.

    Args:
        traces_of: returns the traces of a run; raises a `KbqaError` if the run does not exist.
    """
    router = APIRouter(prefix="/v1/runs/{run}", tags=["runs"])

    @router.get("/steps", summary="Steps whose groups are stored, oldest first")
    def steps(run: str) -> StepList:
        traces = traces_of(run)
        return StepList(run=run, steps=[_view(header) for header in _headers(traces, traces.steps())])

    @router.get("/groups", summary="Groups, newest step first")
    def groups(
        run: str,
        step: Annotated[int | None, Query(ge=0)] = None,
        status: Annotated[str | None, Query(max_length=32)] = None,
        outcome: Annotated[str | None, Query(max_length=32)] = None,
        question: Annotated[str | None, Query(max_length=200)] = None,
        cursor: Cursor | None = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> GroupPage:
        """Filters: `status` of at least one episode of the group, `question` in the question's text or id."""
        traces = traces_of(run)
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

    @router.get("/groups/{step}/{group}", summary="All turns of a group")
    def group(
        run: str, step: Annotated[int, Path(ge=0)], group: Annotated[str, Path(max_length=200)]
    ) -> TracedGroup:
        found = traces_of(run).group(step, group)
        if found is None:
            raise GroupNotFoundError(
                f"step {step} of run {run} has no group {group!r} any more: see GET /v1/runs/{run}/groups"
            )
        return found

    return router


def _headers(traces: Traces, steps: list[int]) -> Iterator[TracedStep]:
    """The headers of the steps that are still stored."""
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

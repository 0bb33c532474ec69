"""Bodies of the trainer's requests and responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from kbqa.runs.directory import SplitLimits, State
from kbqa.wire import RUN_PATTERN

RecipeName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class StartRun(BaseModel):
    """What to train.

    Attributes:
        recipe: name of a shipped recipe, or all values of one.
        dataset: name of a data set or mixture; kg_server must have loaded its graphs.
        overrides: values by dotted key that override those of a named recipe.
        limits: maximum number of questions by split.
        name: name of the run and its policy (default: data set and time).
    """

    model_config = ConfigDict(extra="forbid")

    recipe: RecipeName | dict[str, Any] = "kg-r1-chooser"
    dataset: Annotated[str, Field(min_length=1)]
    overrides: dict[str, Any] = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=0)] = 1
    limits: SplitLimits = SplitLimits()
    name: Annotated[str, Field(pattern=RUN_PATTERN)] | None = None


class RunView(BaseModel):
    """The state of a run.

    Attributes:
        phase: prepare, warm_up, cold_start, rl or done.
        step: finished steps of the phase; `of` is their maximum number.
        seconds: running time so far.
        device: what it is trained on, for people: `cpu`, or the name of the GPU; None before it is known.
        split: the split that judges the phases: test, or validation if the run uses no test questions.
        f1: mean F1 on that split by phase (base, cold_start, rl), as far as known.
        policy: id of the newest evaluated version.
        latest: the newest record of a step.
        history: the newest records, oldest first.
        groups: number of groups by outcome.
        alarms: active alarms by name, each with its value, its bound and the step at which it was raised.
        best: step, version and metric of the best weights so far, if the recipe names the metric.
        ended: why reinforcement learning ended before its schedule, if it did.
        error: why the run failed.
        summary: the results, once it is done.
    """

    id: str
    state: State
    phase: str
    step: int
    of: int
    seconds: float
    recipe: str
    dataset: str
    seed: int
    created_at: str
    restarts: int
    device: str | None
    split: str
    f1: dict[str, float]
    f1_by_hops: dict[str, dict[str, float]]
    policy: str | None
    latest: dict[str, Any] | None
    history: list[dict[str, Any]]
    groups: dict[str, int]
    alarms: dict[str, dict[str, Any]]
    best: dict[str, Any] | None
    ended: str | None
    error: str | None
    summary: dict[str, Any] | None


class RunSummary(BaseModel):
    """A run in a list; see `RunView`."""

    id: str
    state: State
    phase: str
    step: int
    of: int
    f1: dict[str, float]
    dataset: str
    recipe: str
    created_at: str


class RunList(BaseModel):
    runs: list[RunSummary]


class MetricsPage(BaseModel):
    """Records of steps and evaluations. Pass `last` as `since` to get newer ones."""

    run: str
    last: int
    records: list[dict[str, Any]]


class Promote(BaseModel):
    """Attributes:
    version: a full id; None takes the newest evaluated version.
    """

    model_config = ConfigDict(extra="forbid")

    version: str | None = None


class Promoted(BaseModel):
    run: str
    version: str


class Promotions(BaseModel):
    run: str
    versions: list[str]

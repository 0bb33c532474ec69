"""What a report says, as plain values that a page draws. F1 and shares are fractions of 1."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kbqa.reports.findings import Findings
from kbqa.runs.traces import TracedTurn

Point = tuple[float, float]


class View(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Score(View):
    """A mean with its 95 % interval.

    Attributes:
        low, high: None if the single values are not on record.
        questions, clusters: numbers of questions, and of clusters of questions that ask for the same; None
            if they are not known.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    questions: int | None = None
    clusters: int | None = None


class DifferenceView(View):
    """The difference between two policies in F1, over the questions that both were asked.

    Attributes:
        mean: ours - theirs.
        low, high: 95 % interval, by bootstrap over clusters of questions.
        won, lost: questions that only we, and only they, answered exactly.
        p: of McNemar's test, which treats questions as independent.
    """

    ours: float
    theirs: float
    mean: float
    low: float
    high: float
    questions: int
    clusters: int
    won: int
    lost: int
    p: float


class PhaseView(View):
    """Attributes:
    phase: base, cold_start or rl.
    by_hops: mean F1 by the length of the gold path.
    """

    phase: str
    score: Score
    by_hops: dict[str, float]


class RunView(View):
    """A training run, or an evaluation.

    Attributes:
        system: index in `Report.systems`.
        state: of the run; `evaluated` for an evaluation.
        phase, step, of: where a run is that is not done.
        created_at: ISO 8601.
        seconds: that were worked on it.
        policy: full id of the resulting version.
        phases: in their order.
        gained: by the last phase over the first one.
        notes: what a reader has to know: why it ended, alarms.
        problems: records that could not be read.
    """

    name: str
    system: int
    seed: int
    state: str
    created_at: str
    seconds: float | None
    phase: str = ""
    step: int | None = None
    of: int | None = None
    device: str | None = None
    policy: str | None = None
    split: str | None = None
    phases: list[PhaseView] = []
    gained: DifferenceView | None = None
    notes: list[str] = []
    problems: list[str] = []


class SystemView(View):
    """Runs that differ by their seeds alone.

    Attributes:
        name: recipe, and the values by which it differs from others of that recipe.
        paper: that its reward is from; empty for an evaluation.
        runs: indices in `Report.runs`.
        score: mean of the runs' final F1; its interval is over seeds if there are several, else over
            clusters of questions. None without a result.
        seconds: mean over runs that are done.
        values: of the recipe by dotted key, which other systems on the data set have otherwise.
    """

    name: str
    kind: Literal["recipe", "evaluation"]
    recipe: str
    paper: str
    dataset: str
    runs: list[int]
    score: Score | None
    seconds: float | None
    values: dict[str, Any]


class PairView(View):
    """Two runs, indices in `Report.runs`, that were asked the same questions."""

    ours: int
    theirs: int
    difference: DifferenceView


class ComparisonView(View):
    """Two systems, indices in `Report.systems`.

    Attributes:
        pairs: of runs; those of one seed where both have it.
        mean: of the pairs' differences.
        low, high: 95 %, over pairs if there are several, else over clusters of questions.
    """

    ours: int
    theirs: int
    pairs: list[PairView]
    mean: float
    low: float
    high: float


class SideView(View):
    """Attributes:
    turns: None if they are not on record.
    """

    answers: list[str]
    f1: float
    status: str
    turns: list[TracedTurn] | None


class TellingView(View):
    """A question that only one of two policies answers exactly."""

    question: str
    gold: list[str]
    ours: SideView
    theirs: SideView


class TellingsView(View):
    """Attributes:
    won, lost: numbers of all such questions, of which `questions` are some.
    """

    title: str
    ours: str
    theirs: str
    won: int
    lost: int
    questions: list[TellingView]


class SeriesView(View):
    """The curve of a system.

    Attributes:
        points: the mean over its runs.
        band: (x, low, high) of its 95 % interval; empty with a single run.
        members: the curves of its runs, if there are several.
    """

    system: int
    points: list[Point]
    band: list[tuple[float, float, float]]
    members: list[list[Point]]


class ChartView(View):
    """Attributes:
    smoothed: whether a reader wants the curve smoothed, since every step has other questions.
    steps, seconds: the same curves over steps, and over seconds since the beginning of the run.
    """

    title: str
    about: str
    unit: str
    smoothed: bool
    steps: list[SeriesView]
    seconds: list[SeriesView]


class SceneView(View):
    """What belongs to one data set.

    Attributes:
        systems: indices in `Report.systems`; `reference` is the one that the others are compared with.
    """

    dataset: str
    systems: list[int]
    reference: int
    charts: list[ChartView]
    comparisons: list[ComparisonView]
    tellings: list[TellingsView]


class Report(View):
    """Attributes:
    left_out: runs that cannot be read, each with the reason.
    """

    title: str
    created_at: str
    kbqa: str
    scenes: list[SceneView]
    systems: list[SystemView]
    runs: list[RunView]
    findings: list[Findings]
    left_out: dict[str, str]

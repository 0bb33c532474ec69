"""The page's files and the routes behind it. It has no keys: it is served to this machine alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Response
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, Field

from kbqa.datasets.reviews import (
    LONGEST_WORDING,
    Decision,
    Progress,
    QuestionChangedError,
    Review,
    ReviewFileError,
    Verdict,
    WordingError,
    digest,
)
from kbqa.errors import DatasetError, KbqaError
from kbqa.telemetry.metrics import Metrics
from kbqa.trajectory import Question
from services.access.sites import OwnSite
from services.http import install
from services.page.site import HEADERS, site_router

_STATIC = Path(str(files(__package__) / "static"))
_ERRORS: Mapping[type[KbqaError], int] = {
    QuestionChangedError: 409,
    WordingError: 422,
    ReviewFileError: 507,
    DatasetError: 409,  # a file was removed or damaged while it was being reviewed
}

Labels = Callable[[str, Sequence[str]], Mapping[str, str]]
"""Name of a graph, ids → label of each id that has one."""


class HopView(BaseModel):
    """A step of a path; `inverse` if it leads from the tails of the relation to its heads."""

    relation: str
    inverse: bool


class QuestionView(BaseModel):
    """A question of the sample and what was decided about it.

    Attributes:
        digest: to be sent with a decision, which is refused if the question has changed.
        answers, topics: labels, or ids without a label.
        path, form, sparql: its program, as far as it has these.
        source: where `text` comes from (`Question.wording`), or "".
        wording: words to use instead of `text`, or None.
    """

    id: str
    digest: str
    text: str
    kg: str
    operation: str
    source: str
    answers: list[str]
    topics: list[str]
    path: list[HopView]
    form: str
    sparql: str
    verdict: Verdict
    wording: str | None


class ReviewView(BaseModel):
    """The sample, with the names of both files and the progress in the whole file."""

    file: str
    decisions: str
    questions: list[QuestionView]
    progress: Progress


class DecisionRequest(BaseModel):
    """A decision about the question that was shown with this digest."""

    id: str
    digest: str
    verdict: Verdict
    wording: str | None = Field(default=None, max_length=2 * LONGEST_WORDING)


class DecisionView(BaseModel):
    """What was saved, and the progress in the whole file."""

    verdict: Verdict
    wording: str | None
    progress: Progress


def create_app(review: Review, labels: Labels, *, sample: int, seed: int) -> FastAPI:
    """The application. All routes read or write files, so they run in threads.

    Args:
        labels: names of what questions have as ids.
        sample: number of questions that are shown.
        seed: which ones these are.
    """
    app = FastAPI(title="kbqa questions review", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/v1/review")
    def show(response: Response) -> ReviewView:
        response.headers.update(HEADERS | {"Cache-Control": "no-store"})
        drawn = review.sample(sample, seed)
        named = _named([question for question, _ in drawn], labels)
        return ReviewView(
            file=str(review.path),
            decisions=str(review.decisions_path),
            questions=[_view(question, decision, named) for question, decision in drawn],
            progress=review.progress(),
        )

    @app.post("/v1/decisions")
    def decide(said: DecisionRequest) -> DecisionView:
        saved = review.decide(said.id, said.digest, said.verdict, said.wording)
        return DecisionView(verdict=saved.verdict, wording=saved.wording, progress=review.progress())

    app.include_router(site_router(_STATIC, {"/": "review.html"}))
    install(
        app,
        service="review",
        metrics=Metrics(CollectorRegistry()),
        readiness=lambda: None,
        errors=_ERRORS,
        open_metrics=False,
    )
    app.add_middleware(OwnSite, hosts=())
    return app


def _named(questions: Sequence[Question], labels: Labels) -> dict[tuple[str, str], str]:
    """(graph, id) → label."""
    wanted: dict[str, dict[str, None]] = {}
    for question in questions:
        ids = dict.fromkeys((*question.answers, *question.topic_entities))
        wanted.setdefault(question.kg, {}).update(ids)
    return {
        (kg, id_): label
        for kg, ids in wanted.items()
        for id_, label in labels(kg, list(ids)).items()
        if label
    }


def _view(
    question: Question, decision: Decision | None, named: Mapping[tuple[str, str], str]
) -> QuestionView:
    given = {answer: names[0] for answer, *names in question.names if names}

    def called(ids: Sequence[str]) -> list[str]:
        return [named.get((question.kg, id_)) or given.get(id_, id_) for id_ in ids]

    return QuestionView(
        id=question.id,
        digest=digest(question),
        text=question.text,
        kg=question.kg,
        operation=question.operation,
        source=question.wording,
        answers=called(question.answers),
        topics=called(question.topic_entities),
        path=[HopView(relation=hop.relation, inverse=hop.inverse) for hop in question.path],
        form=question.form,
        sparql=question.sparql,
        verdict=Verdict.OPEN if decision is None else decision.verdict,
        wording=None if decision is None else decision.wording,
    )

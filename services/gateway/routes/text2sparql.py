"""`GET /text2sparql`: a question becomes a query, as in the TEXT2SPARQL challenge.

The challenge's client sends a question and the URI of its data set, and executes the query of the reply on
an endpoint of its own. Its protocol has no reply without a query. The query is therefore empty if there is
none: the client then counts an empty result. Nothing is withheld for lack of confidence, since in the
challenge an empty result is worth no more than a wrong one.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from kbqa.client.models import Answer, AnswerRequest, QueryEvidence
from kbqa.evidence import CitedQuery, Evidence, query_behind
from kbqa.kg.tools import ListedGraphTools
from services.gateway.access.control import Caller, caller_of
from services.gateway.errors import UnknownDatasetError
from services.gateway.question_service import QuestionService
from services.gateway.routes.questions import submission_of
from services.gateway.routes.streaming import unless_gone
from services.gateway.settings import GatewaySettings


class SparqlReply(BaseModel):
    """A reply of the protocol: `dataset` and `question` as sent, and a `query`, empty if there is none."""

    dataset: str
    question: str
    query: str


def text2sparql_router(
    settings: GatewaySettings, service: QuestionService, tools: ListedGraphTools
) -> APIRouter:
    router = APIRouter(tags=["questions"])

    @router.get("/text2sparql", summary="Answer a question with a SPARQL query", response_model=SparqlReply)
    async def text2sparql(
        request: Request,
        dataset: Annotated[
            str, Query(description="URI that the setting DATASETS maps to a graph, or a graph's name.")
        ],
        question: Annotated[str, Query(description="The question, in natural language.")],
    ) -> Response:
        """The query whose result is the answer, for clients of the TEXT2SPARQL challenge."""
        caller = caller_of(request)
        kg = settings.datasets.get(dataset)
        if kg is None or not caller.may_ask(kg):
            kg = await run_in_threadpool(_named, dataset, settings, tools, caller)
        return await unless_gone(request, _reply(request, dataset, question, kg))

    async def _reply(request: Request, dataset: str, question: str, kg: str) -> Response:
        document = await service.answer(submission_of(request, _asked(question, kg)))
        found = [(answer.id, _evidence(answer)) for answer in document.answers]
        query = await run_in_threadpool(query_behind, found, tools, kg)
        return JSONResponse(SparqlReply(dataset=dataset, question=question, query=query or "").model_dump())

    return router


def _named(dataset: str, settings: GatewaySettings, tools: ListedGraphTools, caller: Caller) -> str:
    """The graph with the name of a data set.

    Raises:
        UnknownDatasetError: the caller may ask no graph of that name.
    """
    graphs = [graph.name for graph in tools.graphs() if caller.may_ask(graph.name)]
    if dataset not in graphs:
        uris = [uri for uri, graph in settings.datasets.items() if caller.may_ask(graph)]
        raise UnknownDatasetError(dataset, [*uris, *sorted(graphs)])
    return dataset


def _asked(question: str, kg: str) -> AnswerRequest:
    try:
        return AnswerRequest(question=question, kg=kg, min_confidence=0.0)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error


def _evidence(answer: Answer) -> Evidence | None:
    evidence = answer.evidence
    if isinstance(evidence, QueryEvidence):
        return None if answer.unsupported else CitedQuery(evidence.sparql, evidence.rows, evidence.boolean)
    return evidence.triples or None

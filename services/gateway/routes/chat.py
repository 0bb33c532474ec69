"""`POST /v1/chat/completions` and `GET /v1/models`, for clients of OpenAI's API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from kbqa.errors import GraphNotFoundError
from kbqa.kg.tools import ListedGraphTools
from services.gateway.access.control import Caller, caller_of
from services.gateway.chat import (
    MODEL,
    ChatCompletion,
    ChatModelCard,
    ChatModels,
    ChatRequest,
    Chunks,
    completion,
)
from services.gateway.errors import RequestRefusedError
from services.gateway.question_service import QuestionService, Submission
from services.gateway.routes.questions import submission_of
from services.gateway.routes.streaming import EventStream, unless_gone
from services.gateway.settings import GatewaySettings
from services.http import read_body

# Written by hand: the references of a generated schema would not resolve inside the OpenAPI document.
_DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "properties": {
                        "model": {"type": "string", "description": "kbqa/GRAPH; see GET /v1/models"},
                        "messages": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["role"],
                                "properties": {"role": {"type": "string"}, "content": {"type": "string"}},
                            },
                        },
                        "stream": {"type": "boolean"},
                        "stream_options": {
                            "type": "object",
                            "properties": {"include_usage": {"type": "boolean"}},
                        },
                        "kbqa": {
                            "type": "object",
                            "description": "fields of POST /v1/answer beyond question and graph",
                        },
                    },
                },
                "example": {
                    "model": "kbqa/metaqa",
                    "messages": [{"role": "user", "content": "Who directed Kismet?"}],
                },
            }
        },
    }
}


def chat_router(settings: GatewaySettings, service: QuestionService, tools: ListedGraphTools) -> APIRouter:
    router = APIRouter(tags=["chat"])

    @router.post(
        "/v1/chat/completions",
        summary="Answer a question as a chat completion",
        response_model=ChatCompletion,
        responses={
            200: {
                "description": "The answer; with `stream`, in chunks",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }
        },
        openapi_extra=_DOCUMENTED,
    )
    async def complete(request: Request) -> Response:
        """The question is the user's last message; earlier ones say what it refers to.

        Sampling parameters are accepted and ignored.
        """
        asked = _parse(await read_body(request, settings.max_body_bytes, settings.body_timeout_s))
        kg = asked.graph() or settings.default_graph
        if kg is None:
            kg = await run_in_threadpool(_only_graph, tools, caller_of(request))
        submission = submission_of(request, asked.question(kg), remarks=asked.remarks())
        if asked.stream:
            usage = asked.stream_options is not None and asked.stream_options.include_usage
            chunks = Chunks(asked.model, usage=usage, runs=submission.request.n_runs)
            return await EventStream.begin(
                request, service.stream(submission), keep_alive_s=settings.keep_alive_s, write=chunks.write
            )
        return await unless_gone(request, _whole(service, submission, asked.model))

    @router.get("/v1/models", summary="List the graphs as models")
    def models(caller: Annotated[Caller, Depends(caller_of)]) -> ChatModels:
        return ChatModels(data=[ChatModelCard(id=f"{MODEL}/{kg}") for kg in _graphs(tools, caller)])

    @router.get("/v1/models/{model:path}", summary="Show a graph as a model")
    def model(model: str, caller: Annotated[Caller, Depends(caller_of)]) -> ChatModelCard:
        known = _graphs(tools, caller)
        prefix, _, kg = model.partition("/")
        if prefix != MODEL or kg not in known:
            raise GraphNotFoundError(kg or model, known)
        return ChatModelCard(id=model)

    return router


async def _whole(service: QuestionService, submission: Submission, model: str) -> Response:
    document = await service.answer(submission)
    return JSONResponse(completion(model, document).model_dump(mode="json", exclude_none=True))


def _parse(body: bytes) -> ChatRequest:
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error


def _graphs(tools: ListedGraphTools, caller: Caller) -> list[str]:
    return sorted(graph.name for graph in tools.graphs() if caller.may_ask(graph.name))


def _only_graph(tools: ListedGraphTools, caller: Caller) -> str:
    names = _graphs(tools, caller)
    if len(names) != 1:
        raise RequestRefusedError(
            f"name a graph in the model, as {MODEL}/GRAPH (there are: {', '.join(names) or 'none'}), "
            "or set KBQA_GATEWAY_DEFAULT_GRAPH"
        )
    return names[0]

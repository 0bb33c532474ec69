"""`POST /v1/answer`, whole or as server-sent events."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from services.gateway.answering import Answering
from services.gateway.routes.streaming import EventStream, unless_gone
from services.gateway.schemas import AnswerRequest, AnswerResponse
from services.gateway.settings import GatewaySettings
from services.http import read_body

_EXAMPLE = {"question": "Who directed Kismet?", "kg": "metaqa"}
_STREAM_EXAMPLE = (
    'event: thought\ndata: {"event": "thought", "run": 0, "turn": 1, "thought": "Whose film is it?"}\n\n'
    'event: action\ndata: {"event": "action", "run": 0, "turn": 1, "action": '
    '{"action": "get_tail_entities", "entity": "Kismet", "relation": "directed_by"}}\n\n'
)
_DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": AnswerRequest.model_json_schema(), "example": _EXAMPLE}},
    }
}


def questions_router(settings: GatewaySettings, answering: Answering) -> APIRouter:
    router = APIRouter(tags=["questions"])

    @router.post(
        "/v1/answer",
        summary="Answer a question",
        response_model=AnswerResponse,
        responses={
            200: {
                "description": "The answer; with `stream`, every step towards it and then the same",
                "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _STREAM_EXAMPLE}},
            }
        },
        openapi_extra=_DOCUMENTED,
    )
    async def answer(request: Request) -> Response:
        """Whatever comes of the question is a `status` under 200.

        `Cache-Control: no-cache` has it answered anew. Whoever leaves has the work stopped.
        """
        asked = parse(await read_body(request, settings.max_body_bytes))
        fresh = "no-cache" in request.headers.get("cache-control", "").lower()
        if asked.stream:
            events = answering.stream(asked, fresh=fresh)
            return await EventStream.begin(request, events, keep_alive_s=settings.keep_alive_s)
        return await unless_gone(request, _whole(answering, asked, fresh))

    return router


async def _whole(answering: Answering, asked: AnswerRequest, fresh: bool) -> Response:
    document = await answering.answer(asked, fresh=fresh)
    return JSONResponse(document.model_dump(mode="json", exclude_none=True))


def parse(body: bytes) -> AnswerRequest:
    """A request from its JSON.

    Raises:
        RequestValidationError: it is none.
    """
    try:
        return AnswerRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error

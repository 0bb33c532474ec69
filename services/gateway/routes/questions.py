"""`POST /v1/answer`, as one document or as server-sent events, and `GET /v1/answers/{id}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway import examples
from services.gateway.access.control import Caller, caller_of, entry_of
from services.gateway.conversations import Remark
from services.gateway.languages import accepted
from services.gateway.question_service import QuestionService, Submission
from services.gateway.routes.problems import PROBLEM_RESPONSE
from services.gateway.routes.streaming import EventStream, unless_gone
from services.gateway.saved import SavedAnswers
from services.gateway.settings import GatewaySettings
from services.http import read_body

_DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": AnswerRequest.model_json_schema(), "examples": examples.REQUESTS}
        },
    }
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer; with `stream`, every step as server-sent events: `linked`, `thought`, "
        "`action`, `observation`, `answer`, and finally `done` with the same document, or `error`",
        "content": {
            "application/json": {"examples": examples.DOCUMENTS},
            "text/event-stream": {"schema": {"type": "string"}, "examples": examples.STREAMS},
        },
    }
}


def questions_router(settings: GatewaySettings, service: QuestionService, saved: SavedAnswers) -> APIRouter:
    router = APIRouter(tags=["questions"])

    @router.post(
        "/v1/answer",
        summary="Answer a question",
        response_model=AnswerResponse,
        responses=_RESPONSES,
        openapi_extra=_DOCUMENTED,
    )
    async def answer(
        request: Request,
        idempotency_key: Annotated[
            str | None,
            Header(
                max_length=255,
                description="Requests with the same key are answered once, however often they are sent.",
            ),
        ] = None,
    ) -> Response:
        """Every outcome of a question is a `status` with HTTP 200.

        `Cache-Control: no-cache` bypasses the cache. If the client disconnects, the work stops.
        """
        body = await read_body(request, settings.max_body_bytes, settings.body_timeout_s)
        submission = submission_of(request, parse(body), idempotency_key)
        if submission.request.stream:
            events = service.stream(submission)
            return await EventStream.begin(request, events, keep_alive_s=settings.keep_alive_s)
        return await unless_gone(request, _whole(service, submission))

    @router.get(
        "/v1/answers/{answer_id}",
        summary="Read an earlier answer again",
        response_model=AnswerResponse,
        response_model_exclude_none=True,
        responses={404: PROBLEM_RESPONSE},
    )
    async def read(answer_id: str, caller: Annotated[Caller, Depends(caller_of)]) -> AnswerResponse:
        """Available for a while (an hour by default), and only to the caller who asked."""
        return (await saved.read(caller.owner, answer_id)).document

    return router


async def _whole(service: QuestionService, submission: Submission) -> Response:
    document = await service.answer(submission)
    return JSONResponse(document.model_dump(mode="json", exclude_none=True))


def submission_of(
    request: Request,
    asked: AnswerRequest,
    idempotency_key: str | None = None,
    remarks: Sequence[Remark] = (),
) -> Submission:
    """The submission of a question: its caller, its audit entry, and options from its headers."""
    fresh = "no-cache" in request.headers.get("cache-control", "").lower()
    languages = accepted(request.headers.get("accept-language", ""))
    return Submission(
        asked, caller_of(request), entry_of(request), fresh, idempotency_key, remarks, languages
    )


def parse(body: bytes) -> AnswerRequest:
    """Parse a request from JSON.

    Raises:
        RequestValidationError: the body is not a valid request.
    """
    try:
        return AnswerRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error

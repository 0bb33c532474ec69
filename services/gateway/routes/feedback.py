"""`POST /v1/feedback`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from kbqa.client.models import FeedbackReceipt, FeedbackRequest
from kbqa.feedback import FeedbackFile
from kbqa.telemetry.metrics import Metrics
from services.gateway.access.audit import AuditEntry
from services.gateway.access.control import Caller, caller_of, entry_of
from services.gateway.saved import SavedAnswers
from services.gateway.settings import GatewaySettings
from services.http import read_body

_DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": FeedbackRequest.model_json_schema()}},
    }
}


def feedback_router(
    settings: GatewaySettings, saved: SavedAnswers, file: FeedbackFile, metrics: Metrics
) -> APIRouter:
    router = APIRouter(tags=["questions"])
    kept = metrics.counter("kbqa_gateway_feedback_total")

    @router.post(
        "/v1/feedback",
        summary="Say whether an answer was right",
        status_code=201,
        response_model=FeedbackReceipt,
        openapi_extra=_DOCUMENTED,
    )
    async def feedback(
        request: Request,
        caller: Annotated[Caller, Depends(caller_of)],
        entry: Annotated[AuditEntry, Depends(entry_of)],
    ) -> FeedbackReceipt:
        """The answer must have been given to the same key, and must still be stored."""
        body = await read_body(request, settings.max_body_bytes, settings.body_timeout_s)
        try:
            said = FeedbackRequest.model_validate_json(body)
        except ValidationError as error:
            raise RequestValidationError(error.errors(include_url=False)) from error
        about = await saved.read(caller.owner, said.answer_id)
        entry.graph, entry.answer = about.document.kg, said.answer_id
        added = await run_in_threadpool(file.add, caller.owner, said, about.request, about.document)
        kept.labels(said.verdict).inc()
        return FeedbackReceipt(id=added.id)

    return router

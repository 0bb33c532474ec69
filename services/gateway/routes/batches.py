"""`/v1/batches`: many questions in one file, answered when there is time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbqa.client.batches import BatchAnswer, BatchesModel, BatchLine, BatchModel
from services.gateway import examples
from services.gateway.access.control import Caller, caller_of
from services.gateway.batches.files import Batch, BatchFiles
from services.gateway.batches.running import BatchRunner
from services.gateway.routes.problems import PROBLEM_RESPONSE
from services.gateway.settings import GatewaySettings
from services.http import read_body

JSON_LINES = "application/x-ndjson"
_BODY_S_PER_MB = 10.0  # time for receiving a batch, besides that of an ordinary request

_DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "JSON lines: requests of `POST /v1/answer`, each with an `id`, without `stream`",
        "content": {JSON_LINES: {"schema": BatchLine.model_json_schema(), "examples": examples.BATCHES}},
    }
}
_LINES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "JSON lines, one for each line that is ready",
        "model": BatchAnswer,
        "content": {
            JSON_LINES: {
                "schema": {"$ref": "#/components/schemas/BatchAnswer"},
                "examples": examples.BATCH_ANSWERS,
            }
        },
    },
    404: PROBLEM_RESPONSE,
}


def batches_router(settings: GatewaySettings, files: BatchFiles, runner: BatchRunner) -> APIRouter:
    router = APIRouter(prefix="/v1/batches", tags=["batches"])

    def model(batch: Batch) -> BatchModel:
        batch.answers.read()
        state = batch.state()
        return BatchModel(
            id=batch.record.id,
            state=state,
            created_at=batch.record.created,
            lines=batch.record.lines,
            answered=batch.answers.count,
            errors=batch.answers.errors,
            waiting=runner.waiting(batch) if state == "running" else None,
        )

    @router.post(
        "",
        summary="Send many questions at once",
        status_code=202,
        response_model_exclude_none=True,
        openapi_extra=_DOCUMENTED,
    )
    async def create(
        request: Request,
        caller: Annotated[Caller, Depends(caller_of)],
        idempotency_key: Annotated[
            str | None,
            Header(max_length=255, description="Requests with the same key create one batch."),
        ] = None,
    ) -> BatchModel:
        """The lines are answered while no caller waits for the gateway, in any order.

        A line that is no valid question gets an error; the others are answered. Each question counts
        towards the key's quota; when the quota is used up, the lines wait.
        """
        timeout_s = settings.body_timeout_s + _BODY_S_PER_MB * settings.batch_mb
        body = await read_body(request, settings.batch_mb * 2**20, timeout_s)
        batch = await run_in_threadpool(files.create, caller.owner, caller.counted_as, body, idempotency_key)
        runner.look()
        return await run_in_threadpool(model, batch)

    @router.get("", summary="List your batches", response_model_exclude_none=True)
    def batches(caller: Annotated[Caller, Depends(caller_of)]) -> BatchesModel:
        mine = (batch for batch in files.up_to_date() if batch.record.owner == caller.owner)
        return BatchesModel(batches=[model(batch) for batch in mine])

    @router.get(
        "/{batch_id}",
        summary="Read the progress of a batch",
        response_model_exclude_none=True,
        responses={404: PROBLEM_RESPONSE},
    )
    def progress(batch_id: str, caller: Annotated[Caller, Depends(caller_of)]) -> BatchModel:
        return model(files.get(caller.owner, batch_id))

    @router.get(
        "/{batch_id}/answers",
        summary="Read the answers of a batch",
        response_class=StreamingResponse,
        responses=_LINES,
    )
    def answers(
        batch_id: str,
        caller: Annotated[Caller, Depends(caller_of)],
        after: Annotated[
            int, Query(ge=0, description="Number of answers to leave out, because you have them already.")
        ] = 0,
    ) -> StreamingResponse:
        """Everything that is ready, in the order in which it became ready. The order never changes."""
        batch = files.get(caller.owner, batch_id)
        batch.answers.read()
        return StreamingResponse(batch.answers.after(after), media_type=JSON_LINES)

    @router.post(
        "/{batch_id}/cancel",
        summary="Cancel a batch",
        response_model_exclude_none=True,
        responses={404: PROBLEM_RESPONSE},
    )
    async def cancel(batch_id: str, caller: Annotated[Caller, Depends(caller_of)]) -> BatchModel:
        """No further line is begun; answers that are ready can still be read."""
        batch = await run_in_threadpool(files.get, caller.owner, batch_id)
        await run_in_threadpool(batch.cancel)
        await runner.stop(batch)
        return await run_in_threadpool(model, batch)

    @router.delete(
        "/{batch_id}",
        summary="Delete a batch and its answers",
        status_code=204,
        responses={404: PROBLEM_RESPONSE},
    )
    async def delete(batch_id: str, caller: Annotated[Caller, Depends(caller_of)]) -> None:
        """A batch that is not done is cancelled first."""
        batch = await run_in_threadpool(files.get, caller.owner, batch_id)
        await run_in_threadpool(batch.cancel)
        await runner.stop(batch)
        await run_in_threadpool(files.delete, batch)

    return router

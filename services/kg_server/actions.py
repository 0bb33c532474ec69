"""`POST /v1/kg/{kg}/actions` and `GET /v1/kg`."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kbqa.errors import GraphNotFoundError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.ranking.ranker import Schemas
from kbqa.kg.store import GraphInfo, GraphStore
from kbqa.telemetry.metrics import Metrics
from services.http import read_body
from services.kg_server.batches import CostlyBatches
from services.kg_server.callers import Caller, caller_of
from services.kg_server.look_ups import LookUps, to_action
from services.kg_server.meter import ActionMeter
from services.kg_server.schemas import (
    AnswerModel,
    GraphModel,
    GraphsModel,
    batch_schema,
    dump_batch,
    dump_result,
    parse_batch,
)
from services.kg_server.settings import KgServerSettings

# A batch up to this size takes less time than handing it to a thread.
_INLINE_BATCH = 128


def _documented_body() -> dict[str, Any]:
    content = {
        "schema": batch_schema(),
        "example": {"actions": [{"action": "get_tail_relations", "entity": "Kismet"}]},
    }
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


async def opened(catalog: GraphCatalog, kg: str, caller: Caller) -> GraphStore:
    """A graph's newest version; leaves the event loop only if the catalog must look for a newer one.

    Every request gets its graph here, so that no route can forget to ask whether the caller may have it.

    Raises:
        GraphForbiddenError: the caller's key is restricted to other graphs.
        GraphNotFoundError: no graph with this name is loaded; names only graphs that the caller may ask.
    """
    caller.require(kg)
    store = catalog.fresh(kg)
    if store is not None:
        return store
    try:
        return await run_in_threadpool(catalog.get, kg)
    except GraphNotFoundError:
        known = await run_in_threadpool(listed, catalog, caller)
        raise GraphNotFoundError(kg, [info.name for info in known]) from None


def listed(catalog: GraphCatalog, caller: Caller) -> list[GraphInfo]:
    """The loaded graphs that a caller may ask."""
    return [info for info in catalog.list() if caller.may_ask(info.name)]


def add_actions(
    app: FastAPI,
    settings: KgServerSettings,
    catalog: GraphCatalog,
    schemas: Schemas,
    costly: CostlyBatches,
    metrics: Metrics,
) -> None:
    """Add the two routes to `app`."""
    router = APIRouter(prefix="/v1/kg", tags=["graphs"])
    meter = ActionMeter(metrics)
    look_ups = LookUps(meter, max_bytes=settings.look_up_cache_mb * 2**20)

    @router.get("", summary="List the loaded graphs", response_model=GraphsModel)
    def graphs(request: Request) -> GraphsModel:
        """Only graphs that the key may ask about."""
        return GraphsModel(
            graphs=[
                GraphModel.model_validate(g, from_attributes=True)
                for g in listed(catalog, caller_of(request))
            ]
        )

    @router.post(
        "/{kg}/actions",
        summary="Execute a batch of actions",
        responses={200: {"model": AnswerModel}},
        response_class=Response,
        openapi_extra=_documented_body(),
    )
    async def actions(kg: str, request: Request) -> Response:
        """Results are in the order of the actions. A failed action is a result with HTTP 200 and does not
        affect the other actions."""
        body = await read_body(request, settings.max_body_bytes, settings.body_timeout_s)
        batch, graph = parse_batch(body, settings.max_batch)
        caller = caller_of(request)
        store = await opened(catalog, kg, caller)
        surroundings = settings.surroundings(store, schemas.of(store))
        meter.batch(len(batch))

        def look_up() -> list[bytes] | None:
            return look_ups.answer(surroundings, batch, graph, fresh=caller.fresh, private=caller.private)

        results = None
        # Look-ups at a remote endpoint may take long, so they pass the gate and the batch's deadline.
        if not store.is_remote:
            results = look_up() if len(batch) <= _INLINE_BATCH else await run_in_threadpool(look_up)
        if results is None:
            asked = [to_action(action) for action in batch]
            found = await costly.run(kg, surroundings, asked, graph, caller)
            meter.count(asked, found)
            results = [orjson.dumps(dump_result(result)) for result in found]
        answer = dump_batch(kg, store.version, results)
        if len(answer) > settings.max_answer_bytes:
            raise HTTPException(
                413, f"the answer has {len(answer)} bytes, which is too large: ask for less at a time"
            )
        return Response(answer, media_type="application/json")

    app.include_router(router)
    # The router above documents the route; this one comes first and handles it, because FastAPI's routing
    # and parameters would take longer than the answer.
    app.router.routes.insert(0, _PlainRoute("/v1/kg/{kg}/actions", actions, methods=["POST"]))


class _PlainRoute(Route):
    """A route that calls `endpoint(kg, request)` directly, without FastAPI's parameters."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)  # responds with 405
            return
        scope["route"] = self  # for metrics
        response = await self.endpoint(scope["path_params"]["kg"], Request(scope, receive))
        await response(scope, receive, send)

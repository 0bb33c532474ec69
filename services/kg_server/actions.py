"""`POST /v1/kg/{kg}/actions` and `GET /v1/kg`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from kbqa.kg.actions import Action, ActionResult, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.handlers import Surroundings
from kbqa.kg.oxigraph import OxigraphStore
from kbqa.kg.ranking import Schemas
from kbqa.kg.tools import HANDLERS, execute
from kbqa.telemetry import Metrics
from services.http import read_body
from services.kg_server.schemas import (
    AnswerModel,
    BatchModel,
    GraphModel,
    GraphsModel,
    dump_batch,
    parse_batch,
)
from services.kg_server.settings import KgServerSettings

# A batch up to this size takes less than handing it to a thread and back.
_INLINE_BATCH = 128

_DOCUMENTED_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": BatchModel.model_json_schema(),
                "example": {"actions": [{"action": "get_tail_relations", "entity": "Kismet"}]},
            }
        },
    }
}


async def opened(catalog: GraphCatalog, kg: str) -> OxigraphStore:
    """A graph's newest version; leaves the event loop only to look whether there is one.

    Raises:
        GraphNotFoundError: none of that name is loaded.
    """
    store = catalog.fresh(kg)
    return store if store is not None else await run_in_threadpool(catalog.get, kg)


def actions_router(
    settings: KgServerSettings, catalog: GraphCatalog, schemas: Schemas, metrics: Metrics
) -> APIRouter:
    router = APIRouter(prefix="/v1/kg", tags=["graphs"])
    meter = _Meter(metrics)

    @router.get("", summary="The graphs that are loaded", response_model=GraphsModel)
    def graphs() -> GraphsModel:
        return GraphsModel(
            graphs=[
                GraphModel(name=g.name, version=g.version, triples=g.triples, entities=g.entities)
                for g in catalog.list()
            ]
        )

    @router.post(
        "/{kg}/actions",
        summary="Execute a batch of actions",
        responses={200: {"model": AnswerModel}},
        response_class=Response,
        openapi_extra=_DOCUMENTED_BODY,
    )
    async def actions(kg: str, request: Request) -> Response:
        """Answered in order. A failed action is a result under 200 and fails no neighbour."""
        body = await read_body(request, settings.max_body_bytes)
        batch, graph = parse_batch(body, settings.max_batch)
        store = await opened(catalog, kg)

        def answer() -> bytes:
            schema = schemas.of(store)
            surroundings = Surroundings(store, schema, settings.max_items, settings.query_deadline_s)
            results = execute(surroundings, batch, graph=graph)
            meter.observe(batch, results)
            return dump_batch(kg, store.version, results)

        content = answer() if len(batch) <= _INLINE_BATCH else await run_in_threadpool(answer)
        return Response(content, media_type="application/json")

    return router


class _Meter:
    """Metrics of batches; label look-ups are done once per name and outcome, not per action."""

    def __init__(self, metrics: Metrics) -> None:
        self._batches = metrics.histogram("kbqa_kg_batch_size")
        self._actions = metrics.counter("kbqa_kg_actions_total")
        seconds = metrics.histogram("kbqa_kg_action_seconds")
        self._seconds = {name: seconds.labels(name) for name in HANDLERS}

    def observe(self, batch: list[Action], results: list[ActionResult]) -> None:
        self._batches.observe(len(batch))
        outcomes: Counter[tuple[str, str]] = Counter()
        elapsed: dict[str, tuple[float, int]] = {}
        for action, result in zip(batch, results, strict=True):
            # Any other name would make a time series of whatever a policy writes.
            known = isinstance(action.name, str) and action.name in HANDLERS
            name = action.name if known else "unknown"
            if isinstance(result, Success):
                outcomes[name, "ok"] += 1
                total_ms, count = elapsed.get(name, (0.0, 0))
                elapsed[name] = total_ms + result.elapsed_ms, count + 1
            else:
                outcomes[name, result.code] += 1
        for (name, outcome), count in outcomes.items():
            self._actions.labels(name, outcome).inc(count)
        for name, (total_ms, count) in elapsed.items():
            self._seconds[name].observe(total_ms / count / 1000)

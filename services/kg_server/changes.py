"""`POST /v1/kg/{kg}/changes`: inserts and deletes triples of a graph."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from kbqa.errors import ChangeTooLargeError, GraphChangeError, GraphNotFoundError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.changes.batch import Batch, limited, read_triples
from kbqa.kg.changes.graph_changes import GraphChanges
from kbqa.kg.changes.updates import batch_of_update
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.loading.changing import Changed
from kbqa.kg.store import GraphStore
from kbqa.telemetry.metrics import Metrics
from services.access.errors import ChangesForbiddenError
from services.http import read_body
from services.kg_server.actions import listed
from services.kg_server.callers import Caller, caller_of
from services.kg_server.settings import KgServerSettings

logger = logging.getLogger(__name__)

# While a change is made, the event loop alternates between leaving time to it and taking time for look-ups.
_GIVEN_S, _TAKEN_S = 0.0005, 0.003

_UPDATE, _TRIPLES, _JSON = "application/sparql-update", "application/n-triples", "application/json"


class ChangesModel(BaseModel):
    """A batch: its triples are deleted first, then inserted, all of them or none."""

    model_config = ConfigDict(extra="forbid")

    insert: str = Field("", description="triples in N-Triples, one a line")
    delete: str = Field("", description="likewise")


class ChangedModel(BaseModel):
    """What a batch did."""

    kg: str
    version: str = Field(description="of the graph with the changes")
    inserted: int
    deleted: int
    ignored: int = Field(description="triples that were there already, or were not there")
    triples: int = Field(description="of the graph with the changes")
    lost_relations: list[str] = Field(description="relations that no fact has any more, since this batch")
    new_relations: list[str] = Field(description="relations that no fact had before this batch")


def add_changes(
    app: FastAPI, settings: KgServerSettings, catalog: GraphCatalog, metrics: Metrics
) -> Compactions:
    """Add the route to `app`; returns what writes changed graphs whole, to be closed with the server."""
    router = APIRouter(prefix="/v1/kg", tags=["graphs"])
    changes = GraphChanges(catalog)
    compactions, giving_way = Compactions(changes, settings.home), GivingWay()
    counted, seconds = metrics.counter("kbqa_kg_changes_total"), metrics.histogram("kbqa_kg_change_seconds")

    @router.post(
        "/{kg}/changes",
        summary="Insert and delete triples",
        response_model=ChangedModel,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    _JSON: {"schema": ChangesModel.model_json_schema()},
                    _TRIPLES: {"schema": {"type": "string", "description": "triples to insert"}},
                    _UPDATE: {"schema": {"type": "string"}},
                },
            }
        },
    )
    async def change(
        kg: str, request: Request, idempotency_key: Annotated[str, Header(max_length=200)] = ""
    ) -> ChangedModel:
        """All changes of a request, or none, become a version of the graph. Requests under way keep theirs.

        With `Idempotency-Key`, a request that is sent again gets the first answer.
        """
        caller = caller_of(request)
        _require_right(caller, kg)
        body = await _body(request, settings)
        media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if media_type not in (_UPDATE, _TRIPLES, _JSON):
            raise HTTPException(415, f"send {_JSON}, {_TRIPLES} or {_UPDATE}")

        def read(shown: GraphStore, store: OxigraphStore) -> Batch:
            return _batch(body, media_type, shown, store, settings.query_deadline_s)

        began = time.perf_counter()
        # Keys of different callers are different.
        key = f"{caller.client}:{idempotency_key}" if idempotency_key else ""
        try:
            async with giving_way:
                changed = await run_in_threadpool(changes.change, kg, read, key=key)
        except GraphNotFoundError:
            known = await run_in_threadpool(listed, catalog, caller)
            raise GraphNotFoundError(kg, [info.name for info in known]) from None
        elapsed_s = time.perf_counter() - began
        for what in ("inserted", "deleted", "ignored"):
            counted.labels(kg, what).inc(getattr(changed, what))
        seconds.observe(elapsed_s)
        _log(changed, caller, elapsed_s)
        compactions.consider(kg)
        return ChangedModel.model_validate(changed, from_attributes=True)

    app.include_router(router)
    return compactions


class GivingWay:
    """While it is entered, the event loop sleeps now and then, so that a thread that is waited for goes on.

    A thread that returns from the disk needs the interpreter's lock. If look-ups keep the loop busy, the loop
    takes the lock again before the thread wakes up, and a change takes half a second or more. The loop does
    not sleep more often if several changes are waited for.
    """

    def __init__(self) -> None:
        self._entered = 0
        self._sleeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._entered += 1
        if self._sleeping is None:
            self._sleeping = asyncio.create_task(_sleep_now_and_then())

    async def __aexit__(self, *_: object) -> None:
        self._entered -= 1
        if self._sleeping is not None and not self._entered:
            self._sleeping.cancel()
            self._sleeping = None


async def _sleep_now_and_then() -> None:
    while True:
        time.sleep(_GIVEN_S)
        await asyncio.sleep(_TAKEN_S)


def _require_right(caller: Caller, kg: str) -> None:
    """Check that a caller may change a graph.

    Raises:
        GraphForbiddenError: its key is restricted to other graphs.
        ChangesForbiddenError: its key only reads.
    """
    caller.require(kg)
    if not caller.may_change:
        raise ChangesForbiddenError


async def _body(request: Request, settings: KgServerSettings) -> str:
    try:
        body = await read_body(request, settings.max_body_bytes, settings.body_timeout_s)
    except HTTPException as error:
        if error.status_code == 413:
            raise ChangeTooLargeError(
                f"a batch has at most {settings.max_body_bytes} bytes: send several, or change the graph "
                "with kbqa kg update"
            ) from None
        raise
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise GraphChangeError("the text is not UTF-8") from error


def _batch(body: str, media_type: str, shown: GraphStore, store: OxigraphStore, deadline_s: float) -> Batch:
    if media_type == _UPDATE:
        return batch_of_update(body, shown, named=store.of_names, deadline_s=deadline_s)
    if media_type == _TRIPLES:
        return Batch(limited(read_triples(body, "insert", named=store.of_names)))
    try:
        given = ChangesModel.model_validate_json(body)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise GraphChangeError(f"{'.'.join(map(str, wrong['loc'])) or 'the body'}: {wrong['msg']}") from None
    return Batch(
        limited(read_triples(given.insert, "insert", named=store.of_names)),
        limited(read_triples(given.delete, "delete", named=store.of_names)),
    )


def _log(changed: Changed, caller: Caller, elapsed_s: float) -> None:
    logger.info(
        "graph changed",
        extra={
            "graph": changed.kg,
            "version": changed.version,
            "client": caller.client,
            "inserted": changed.inserted,
            "deleted": changed.deleted,
            "ignored": changed.ignored,
            "elapsed_ms": round(elapsed_s * 1000, 1),
        },
    )
    if changed.lost_relations:
        logger.warning(
            "relations are gone", extra={"graph": changed.kg, "relations": list(changed.lost_relations[:20])}
        )


class Compactions:
    """Writes graphs with many changes whole, in a process of its own, one at a time."""

    def __init__(self, changes: GraphChanges, home: Path) -> None:
        self._changes, self._home = changes, home
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def consider(self, kg: str) -> None:
        """Begin to write a graph whole if it should be, and no other is being written."""
        with self._lock:
            if self._child is not None and self._child.poll() is None:
                return
            if self._changes.should_be_compacted(kg):
                logger.info("graph is written whole", extra={"graph": kg})
                command = [sys.executable, "-m", "kbqa.kg.changes.compaction", str(self._home), kg]
                self._child = subprocess.Popen(command)

    async def close(self) -> None:
        """Stop what is being written; the next change of the graph removes the rest of it."""
        if self._child is not None:
            self._child.terminate()
            await asyncio.to_thread(self._child.wait)

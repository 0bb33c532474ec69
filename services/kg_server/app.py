"""Builds kg_server from its parts."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from kbqa import __version__
from kbqa.errors import GraphError
from kbqa.kg.actions import Action, ActionResult
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.ranking.ranker import Schemas
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.store import GraphInfo
from kbqa.telemetry.metrics import Metrics
from services.access.sites import OwnSite
from services.disks import expose_disks
from services.http import install, operations_app
from services.kg_server.actions import add_actions, listed, opened
from services.kg_server.batches import CostlyBatches
from services.kg_server.cache import Cache
from services.kg_server.callers import Caller
from services.kg_server.changes import add_changes
from services.kg_server.errors import STATUS
from services.kg_server.gate import AdmissionGate
from services.kg_server.limits import Admission
from services.kg_server.meter import ActionMeter
from services.kg_server.queries import Queries
from services.kg_server.settings import KgServerSettings
from services.kg_server.sparql import sparql_router

if TYPE_CHECKING:
    from services.kg_server.mcp import McpRoute

logger = logging.getLogger(__name__)


def create_app(settings: KgServerSettings) -> FastAPI:
    """The server of the graphs under `settings.home`.

    It is ready once every graph that was loaded at its start is open.

    If keys are required, `app.state.operations` is the application that serves probes and metrics on another
    port; otherwise it is None.

    Raises:
        ConfigurationError: the Redis URL or the keys are invalid, or the encoder is not available.
        EncoderUnavailableError: the encoder's server does not answer.
    """
    metrics = Metrics(CollectorRegistry())
    expose_disks(metrics, settings)
    pool = _query_pool(settings, metrics)
    catalog = GraphCatalog(settings.home, queries=pool)
    keys = settings.accepted_keys()
    encoder = settings.open_encoder()
    schemas = Schemas(encoder, settings.home / "encodings")
    cache = _cache(settings, metrics)
    limits = (settings.query_max_rows, settings.query_max_bytes)
    queries = Queries(
        cache,
        AdmissionGate(settings.query_processes, settings.query_queue),
        AdmissionGate(settings.endpoint_queries, settings.query_queue),
        metrics,
        limits=limits,
        wait_s=settings.query_wait_s,
    )
    costly = CostlyBatches(
        queries,
        cache,
        AdmissionGate(settings.batch_threads, settings.batch_queue),
        deadline_s=settings.batch_deadline_s,
        profile=repr((limits, settings.max_items, encoder.name, encoder.thresholds)),
    )
    opening = _Opening(catalog, schemas, metrics)
    tools = _tools(settings, catalog, schemas, costly, metrics) if find_spec("mcp") is not None else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        cache.open()
        tasks = [asyncio.create_task(asyncio.to_thread(work)) for work in (pool.warm, opening.run)]
        async with AsyncExitStack() as running:
            if tools is not None:
                await running.enter_async_context(tools.manager.run())
            yield
        opening.close()
        await compactions.close()
        await asyncio.gather(*tasks)
        cache.close()
        catalog.close()

    app = FastAPI(
        title="kg_server",
        summary="Knowledge graphs for agents: batches of one-hop actions, entity linking, SPARQL",
        version=__version__,
        lifespan=lifespan,
    )
    app.add_middleware(Admission, settings=settings, keys=keys, metrics=metrics)
    app.add_middleware(OwnSite, hosts=settings.hosts(keys), origins=settings.allowed_hosts)
    install(
        app,
        service="kg_server",
        metrics=metrics,
        readiness=opening.pending,
        errors=STATUS,
        open_metrics=keys is None,
    )
    app.state.operations = None if keys is None else operations_app(metrics, opening.pending)
    add_actions(app, settings, catalog, schemas, costly, metrics)
    compactions = add_changes(app, settings, catalog, metrics)
    app.include_router(sparql_router(settings, catalog, queries))
    if tools is not None:
        app.router.routes.append(Route("/mcp", tools, methods=["POST"], include_in_schema=False))
    return app


def _query_pool(settings: KgServerSettings, metrics: Metrics) -> QueryPool:
    # Twice as many processes as the gate admits: the others stand by while killed ones are replaced.
    return QueryPool(
        2 * settings.query_processes,
        max_rows=settings.query_max_rows,
        max_bytes=settings.query_max_bytes,
        memory_bytes=settings.query_memory_mb * 2**20,
        observe=metrics.histogram("kbqa_kg_query_seconds").observe,
    )


def _cache(settings: KgServerSettings, metrics: Metrics) -> Cache:
    return Cache(
        settings.redis_url,
        metrics,
        memory_bytes=settings.cache_memory_mb * 2**20,
        max_value_bytes=settings.cache_max_value_bytes,
        ttl_s=settings.cache_ttl_s,
        timeout_s=settings.cache_timeout_s,
    )


def _tools(
    settings: KgServerSettings,
    catalog: GraphCatalog,
    schemas: Schemas,
    costly: CostlyBatches,
    metrics: Metrics,
) -> McpRoute:
    """The actions as MCP tools; each call is a batch of one action."""
    from services.kg_server.mcp import McpRoute, mcp_server

    meter = ActionMeter(metrics)

    async def list_graphs(caller: Caller) -> list[GraphInfo]:
        return await run_in_threadpool(listed, catalog, caller)

    async def execute(kg: str, action: Action, graph: str | None, caller: Caller) -> ActionResult:
        store = await opened(catalog, kg, caller)
        surroundings = settings.surroundings(store, schemas.of(store))
        found = await costly.run(kg, surroundings, [action], graph, caller)
        meter.count([action], found)
        return found[0]

    return McpRoute(mcp_server(list_graphs, execute), settings.max_body_bytes)


class _Opening:
    """Opens every graph once, so that no request has to wait for it."""

    def __init__(self, catalog: GraphCatalog, schemas: Schemas, metrics: Metrics) -> None:
        self._catalog, self._schemas = catalog, schemas
        self._triples = metrics.gauge("kbqa_kg_triples")
        self._done = False
        self._closed = threading.Event()

    def run(self) -> None:
        for info in self._catalog.list():
            try:
                store = self._catalog.get(info.name)
            except (GraphError, OSError):
                # The other graphs are served; requests for this one report the error.
                logger.exception("graph cannot be opened", extra={"graph": info.name})
                continue
            if store.triples is not None:
                self._triples.labels(info.name).set(store.triples)
            logger.info("graph opened", extra={"graph": info.name, "version": store.version})
        self._done = True
        # Only now that the server is ready: encoding a large schema takes a dense encoder minutes. An action
        # that ranks relations earlier has them encoded on demand.
        for info in self._catalog.list():
            try:
                self._schemas.of(self._catalog.get(info.name)).warm(self._closed.is_set)
            except (GraphError, OSError):
                logger.exception("the schema cannot be encoded in advance", extra={"graph": info.name})

    def close(self) -> None:
        """Make `run` end soon; the encodings of an unfinished schema are discarded."""
        self._closed.set()

    def pending(self) -> str | None:
        return None if self._done else "graphs are being opened"

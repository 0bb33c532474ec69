"""The parts of kg_server, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from kbqa import __version__
from kbqa.errors import GraphError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.query_pool import QueryPool
from kbqa.kg.ranking import Schemas
from kbqa.telemetry import Metrics
from services.http import install, operations_app
from services.kg_server.actions import add_actions
from services.kg_server.batches import CostlyBatches
from services.kg_server.cache import Cache
from services.kg_server.errors import STATUS
from services.kg_server.gate import Gate
from services.kg_server.keys import ApiKeys
from services.kg_server.limits import Admission
from services.kg_server.queries import Queries
from services.kg_server.settings import KgServerSettings
from services.kg_server.sparql import sparql_router

logger = logging.getLogger(__name__)


def create_app(settings: KgServerSettings) -> FastAPI:
    """The server of the graphs under `settings.home`.

    It is ready once every graph that was loaded at its start is open. Where keys are
    required, `app.state.operations` is the application of probes and metrics for a port of
    its own, else None.

    Raises:
        ConfigurationError: the Redis URL is none, a key is too short, or the encoder is not there.
        EncoderUnavailableError: the encoder's server does not answer.
    """
    metrics = Metrics(CollectorRegistry())
    pool = QueryPool(
        settings.query_processes,
        max_rows=settings.query_max_rows,
        max_bytes=settings.query_max_bytes,
        memory_bytes=settings.query_memory_mb * 2**20,
    )
    catalog = GraphCatalog(settings.home, queries=pool)
    keys = ApiKeys.load(
        settings.api_keys.get_secret_value() if settings.api_keys is not None else None,
        settings.api_keys_file,
    )
    encoder = settings.open_encoder()
    schemas = Schemas(encoder, settings.home / "encodings")
    cache = Cache(
        settings.redis_url,
        metrics,
        memory_bytes=settings.cache_memory_mb * 2**20,
        max_value_bytes=settings.cache_max_value_bytes,
        ttl_s=settings.cache_ttl_s,
        timeout_s=settings.cache_timeout_s,
    )
    limits = (settings.query_max_rows, settings.query_max_bytes)
    queries = Queries(
        cache,
        Gate(settings.query_processes, settings.query_queue),
        metrics,
        limits=limits,
        wait_s=settings.query_wait_s,
    )
    costly = CostlyBatches(
        queries,
        cache,
        Gate(settings.batch_threads, settings.batch_queue),
        deadline_s=settings.batch_deadline_s,
        profile=repr((limits, settings.max_items, encoder.name, encoder.thresholds)),
    )
    opening = _Opening(catalog, schemas, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        cache.open()
        tasks = [asyncio.create_task(asyncio.to_thread(work)) for work in (pool.warm, opening.run)]
        yield
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
    app.include_router(sparql_router(settings, catalog, queries))
    return app


class _Opening:
    """Opens every graph once, so that no request has to wait for it."""

    def __init__(self, catalog: GraphCatalog, schemas: Schemas, metrics: Metrics) -> None:
        self._catalog, self._schemas = catalog, schemas
        self._triples = metrics.gauge("kbqa_kg_triples")
        self._done = False

    def run(self) -> None:
        for info in self._catalog.list():
            try:
                store = self._catalog.get(info.name)
            except (GraphError, OSError):
                # The others are served; requests for this one say what is wrong.
                logger.exception("graph cannot be opened", extra={"graph": info.name})
                continue
            self._triples.labels(info.name).set(store.triples)
            logger.info("graph opened", extra={"graph": info.name, "version": store.version})
        self._done = True
        # After it is ready: a large schema takes a dense encoder minutes, and what an action
        # ranks before is encoded then.
        for info in self._catalog.list():
            try:
                schema = self._schemas.of(self._catalog.get(info.name))
                schema.relations.warm()
                schema.types.warm()
            except (GraphError, OSError):
                logger.exception("schema cannot be encoded beforehand", extra={"graph": info.name})

    def pending(self) -> str | None:
        return None if self._done else "graphs are being opened"

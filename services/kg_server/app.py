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
from services.http import install
from services.kg_server.actions import actions_router
from services.kg_server.cache import SparqlCache
from services.kg_server.errors import STATUS
from services.kg_server.settings import KgServerSettings
from services.kg_server.sparql import sparql_router

logger = logging.getLogger(__name__)


def create_app(settings: KgServerSettings) -> FastAPI:
    """The server of the graphs under `settings.home`.

    It is ready once every graph that was loaded at its start is open.

    Raises:
        ConfigurationError: the Redis URL is none, or the encoder is not there.
        EncoderUnavailableError: the encoder's server does not answer.
    """
    metrics = Metrics(CollectorRegistry())
    queries = QueryPool(
        settings.query_processes,
        max_rows=settings.query_max_rows,
        max_bytes=settings.query_max_bytes,
        memory_bytes=settings.query_memory_mb * 2**20,
    )
    catalog = GraphCatalog(settings.home, queries=queries)
    cache = SparqlCache(
        settings.redis_url,
        metrics,
        limits=(settings.query_max_rows, settings.query_max_bytes),
        ttl_s=settings.cache_ttl_s,
        timeout_s=settings.cache_timeout_s,
    )
    schemas = Schemas(settings.open_encoder(), settings.home / "encodings")
    opening = _Opening(catalog, schemas, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(asyncio.to_thread(opening.run))
        yield
        await task
        await cache.close()
        catalog.close()

    app = FastAPI(
        title="kg_server",
        summary="Knowledge graphs for agents: batches of one-hop actions, entity linking, SPARQL",
        version=__version__,
        lifespan=lifespan,
    )
    install(app, service="kg_server", metrics=metrics, readiness=opening.pending, errors=STATUS)
    app.include_router(actions_router(settings, catalog, schemas, metrics))
    app.include_router(sparql_router(settings, catalog, cache, metrics))
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

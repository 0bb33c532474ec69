"""The parts of the gateway, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool

from kbqa import __version__
from kbqa.errors import GraphUnavailableError
from kbqa.kg.client import HttpGraphTools
from kbqa.telemetry import Metrics
from services.gateway.answering import Answering
from services.gateway.errors import STATUS
from services.gateway.policies import PolicySource
from services.gateway.routes.graphs import graphs_router
from services.gateway.routes.questions import questions_router
from services.gateway.settings import GatewaySettings
from services.gateway.sources import policies_of
from services.http import install


def create_app(settings: GatewaySettings, policies: PolicySource | None = None) -> FastAPI:
    """The gateway to the policies under `settings.home` and the graphs of `settings.kg_server_url`.

    It is ready once it has a policy and kg_server answers.

    Args:
        policies: another source than the promoted version of the policy store.
    """
    metrics = Metrics(CollectorRegistry())
    tools = HttpGraphTools(settings.kg_server_url, api_key=settings.kg_server_api_key)
    source = policies or policies_of(settings, metrics)
    answering = Answering(settings, source, tools, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        source.start()
        yield
        answering.close()
        await run_in_threadpool(source.stop)
        tools.close()

    def unready() -> str | None:
        reasons = [reason for reason in (source.unready(), _unreachable(tools)) if reason is not None]
        return "; ".join(reasons) or None

    app = FastAPI(
        title="gateway",
        summary="Answers to questions about a knowledge graph, with the triples that support them",
        version=__version__,
        lifespan=lifespan,
    )
    install(app, service="gateway", metrics=metrics, readiness=unready, errors=STATUS)
    app.include_router(questions_router(settings, answering))
    app.include_router(graphs_router(tools))
    return app


def _unreachable(tools: HttpGraphTools) -> str | None:
    try:
        tools.graphs()
    except GraphUnavailableError as error:
        return str(error)
    return None

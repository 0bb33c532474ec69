"""Builds the gateway from its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool

from kbqa import __version__
from kbqa.client.events import EVENT
from kbqa.conversation import ChatRewriter
from kbqa.errors import GraphUnavailableError, PolicyError
from kbqa.kg.client import HttpGraphTools
from kbqa.kg.tools import ListedGraphTools
from kbqa.serving.policies import PolicySource
from kbqa.telemetry.metrics import Metrics
from services.disks import expose_disks
from services.engine_metrics import relay_engine_metrics
from services.gateway.access.control import require_every_graph
from services.gateway.access_stack import AccessStack
from services.gateway.answering import Answering
from services.gateway.batches.files import BatchFiles, batches_path
from services.gateway.batches.running import BatchRunner, line_answers
from services.gateway.errors import STATUS
from services.gateway.page import page_router, records_router
from services.gateway.routes.batches import batches_router
from services.gateway.routes.chat import chat_router
from services.gateway.routes.feedback import feedback_router
from services.gateway.routes.graphs import graphs_router
from services.gateway.routes.policies import policies_router
from services.gateway.routes.problems import PROBLEM_RESPONSES
from services.gateway.routes.questions import questions_router
from services.gateway.routes.text2sparql import text2sparql_router
from services.gateway.settings import GatewaySettings
from services.gateway.sources import policies_of, rewriting_client
from services.http import install, operations_app


def create_app(
    settings: GatewaySettings, policies: PolicySource | None = None, graphs: ListedGraphTools | None = None
) -> FastAPI:
    """The gateway to the policies under `settings.home` and the graphs of `settings.kg_server_url`.

    It is ready once it has a policy and kg_server answers.

    If keys are required, `app.state.operations` is the application that serves probes and metrics on
    another port; otherwise it is None.

    Args:
        policies: source of policies instead of the one in the settings.
        graphs: graphs instead of those of the kg_server.
    """
    metrics = Metrics(CollectorRegistry())
    expose_disks(metrics, settings)
    served = HttpGraphTools(settings.kg_server_url, api_key=settings.kg_server_api_key)
    tools = graphs or served
    source = policies or policies_of(settings, metrics)
    answering = Answering(settings, source, tools, metrics)
    metrics.observed("kbqa_gateway_policy_info", partial(_answering_policy, source))
    access = AccessStack(settings, metrics)
    chat = rewriting_client(settings)
    service = access.service(answering, tools, None if chat is None else ChatRewriter(chat))
    page = page_router()

    def unready() -> str | None:
        reasons = [reason for reason in (source.unready(), _unreachable(tools)) if reason is not None]
        return "; ".join(reasons) or None

    batches = BatchFiles(
        batches_path(settings.home),
        most_lines=settings.batch_lines,
        kept=settings.batches_kept,
        ttl_s=settings.batches_ttl_s,
    )
    runner = BatchRunner(
        batches,
        line_answers(access.callers, service),
        unready,
        metrics,
        places=settings.batch_concurrency,
        max_line_bytes=settings.max_body_bytes,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        source.start()
        access.usage.start()
        runner.start()
        yield
        await runner.close()
        answering.close()
        await run_in_threadpool(source.stop)
        served.close()
        if chat is not None:
            await run_in_threadpool(chat.close)
        await access.close()

    app = FastAPI(
        title="gateway",
        summary="Answers to questions about a knowledge graph, with the triples that support them",
        version=__version__,
        lifespan=lifespan,
    )
    closed = access.callers.keys is not None
    access.add_access_control(app, page.routes)
    install(
        app,
        service="gateway",
        metrics=metrics,
        readiness=unready,
        errors=STATUS,
        open_metrics=not closed,
    )
    access.add_headers(app)
    app.state.operations = operations_app(metrics, unready) if closed else None
    if settings.engine == "vllm":
        relay_engine_metrics(app.state.operations or app, settings.vllm_urls)
    for router in (
        questions_router(settings, service, access.saved),
        batches_router(settings, batches, runner),
        feedback_router(settings, access.saved, access.feedback, metrics),
        chat_router(settings, service, tools),
        text2sparql_router(settings, service, tools),
        graphs_router(tools, settings.home),
        policies_router(source, settings.policies()),
        page,
    ):
        app.include_router(router, responses=PROBLEM_RESPONSES)
    app.include_router(
        records_router(settings.home),
        responses=PROBLEM_RESPONSES,
        dependencies=[Depends(require_every_graph)],
    )
    _describe_events(app)
    return app


def _describe_events(app: FastAPI) -> None:
    """Add a stream's events, which FastAPI leaves out, to the OpenAPI document: clients are made from it."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            events = EVENT.json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
            parts = events.pop("$defs")
            schemas = plain()["components"]["schemas"]
            schemas |= {name: part for name, part in parts.items() if name not in schemas} | {"Event": events}
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _answering_policy(source: PolicySource) -> dict[tuple[str, ...], float]:
    """Run and version of the policy that answers; nothing while there is none."""
    try:
        lease = source.lease()
    except PolicyError:
        return {}
    found: dict[tuple[str, ...], float] = {(lease.served.run, lease.served.version): 1.0}
    lease.release()
    return found


def _unreachable(tools: ListedGraphTools) -> str | None:
    try:
        tools.graphs()
    except GraphUnavailableError as error:
        return str(error)
    return None

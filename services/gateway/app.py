"""The parts of the gateway, put together."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from kbqa import __version__
from kbqa.errors import GraphUnavailableError
from kbqa.kg.client import HttpGraphTools
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import PolicyVersion
from kbqa.telemetry import Metrics
from services.gateway.answering import Answering
from services.gateway.engine import Vllm, load_policy
from services.gateway.errors import STATUS, OverloadedError
from services.gateway.policies import PolicySource, PromotedPolicies, ServedPolicy
from services.gateway.schemas import AnswerRequest, AnswerResponse, GraphModel, GraphsModel
from services.gateway.settings import GatewaySettings
from services.http import install, problem, read_body

_RETRY_AFTER_S = "2"
_DOCUMENTED_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": AnswerRequest.model_json_schema(),
                "example": {"question": "Who directed Kismet?", "kg": "metaqa"},
            }
        },
    }
}


def create_app(settings: GatewaySettings, policies: PolicySource | None = None) -> FastAPI:
    """The gateway to the policies under `settings.home` and the graphs of `settings.kg_server_url`.

    It is ready once it has a policy and kg_server answers.

    Args:
        policies: another source than the promoted version of the policy store.
    """
    metrics = Metrics(CollectorRegistry())
    tools = HttpGraphTools(settings.kg_server_url, api_key=settings.kg_server_api_key)
    promoted = _promoted_policies(settings, metrics) if policies is None else None
    source = policies or promoted
    assert source is not None
    answering = Answering(settings, source, tools, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if promoted is not None:
            promoted.start()
        yield
        answering.close()
        if promoted is not None:
            await run_in_threadpool(promoted.stop)
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
    app.add_exception_handler(OverloadedError, _overloaded)
    _add_routes(app, settings, answering, tools)
    return app


def _add_routes(app: FastAPI, settings: GatewaySettings, answering: Answering, tools: HttpGraphTools) -> None:
    @app.post(
        "/v1/answer",
        tags=["questions"],
        summary="Answer a question",
        response_model=AnswerResponse,
        response_model_exclude_none=True,
        openapi_extra=_DOCUMENTED_BODY,
    )
    async def answer(request: Request) -> AnswerResponse:
        """Whatever comes of the question is a `status` under 200."""
        body = await read_body(request, settings.max_body_bytes)
        return await answering.answer(_parse(body))

    @app.get("/v1/kg", tags=["graphs"], summary="The graphs that are loaded", response_model=GraphsModel)
    def graphs() -> GraphsModel:
        return GraphsModel(
            graphs=[
                GraphModel(name=g.name, version=g.version, triples=g.triples, entities=g.entities)
                for g in tools.graphs()
            ]
        )


def _promoted_policies(settings: GatewaySettings, metrics: Metrics) -> PromotedPolicies:
    store = settings.policies()
    vllm = None
    if settings.engine == "vllm":
        vllm = Vllm(VllmServer(settings.vllm_url), metrics, settings.vllm_precision, settings.vllm_timeout_s)

    holder = f"gateway-{socket.gethostname()}-{os.getpid()}"

    def load(version: PolicyVersion) -> ServedPolicy:
        store.hold(holder, [version])
        return load_policy(store, version, max_rows=settings.max_rows, vllm=vllm)

    return PromotedPolicies(store, load, poll_s=settings.poll_s)


def _parse(body: bytes) -> AnswerRequest:
    try:
        return AnswerRequest.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from error


def _unreachable(tools: HttpGraphTools) -> str | None:
    try:
        tools.graphs()
    except GraphUnavailableError as error:
        return str(error)
    return None


def _overloaded(_: Request, error: Exception) -> Response:
    return problem(429, str(error), kind="overloaded", headers={"Retry-After": _RETRY_AFTER_S})

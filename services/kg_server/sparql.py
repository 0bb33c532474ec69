"""`GET|POST /v1/kg/{kg}/sparql`: the SPARQL 1.1 Protocol, queries only."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from kbqa.errors import QueryRefusedError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.sparql.guard import CheckedQuery, ResultFormat, check_query
from services.http import read_body
from services.kg_server.actions import opened
from services.kg_server.callers import caller_of
from services.kg_server.queries import Queries, QuerySource
from services.kg_server.settings import KgServerSettings

# Media type in an Accept header → format; the first format of each kind of result is the default.
_ROW_TYPES = {
    "application/sparql-results+json": ResultFormat.JSON,
    "application/json": ResultFormat.JSON,
    "application/sparql-results+xml": ResultFormat.XML,
    "application/xml": ResultFormat.XML,
    "text/csv": ResultFormat.CSV,
    "text/tab-separated-values": ResultFormat.TSV,
}
_GRAPH_TYPES = {
    "application/n-triples": ResultFormat.NTRIPLES,
    "text/plain": ResultFormat.NTRIPLES,
    "text/turtle": ResultFormat.TURTLE,
}
_SHORT_CHARS = 4096

_DOCUMENTED: dict[str, Any] = {
    "parameters": [{"name": "query", "in": "query", "required": True, "schema": {"type": "string"}}]
}
_DOCUMENTED_POST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/sparql-query": {"schema": {"type": "string"}},
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "properties": {"query": {"type": "string"}},
                    "required": ["query"],
                }
            },
        },
    }
}


def sparql_router(settings: KgServerSettings, catalog: GraphCatalog, queries: Queries) -> APIRouter:
    router = APIRouter(prefix="/v1/kg", tags=["SPARQL"])

    @router.get("/{kg}/sparql", summary="Query by URL", response_class=Response, openapi_extra=_DOCUMENTED)
    async def by_url(kg: str, request: Request) -> Response:
        """Results are JSON, XML, CSV or TSV; for CONSTRUCT and DESCRIBE, N-Triples or Turtle."""
        return await answer(kg, _sole_query(request.scope["query_string"]), request)

    @router.post(
        "/{kg}/sparql", summary="Query by body", response_class=Response, openapi_extra=_DOCUMENTED_POST
    )
    async def by_body(kg: str, request: Request) -> Response:
        """The body is a form or the query itself; results are as for GET."""
        body = await read_body(request, settings.max_body_bytes, settings.body_timeout_s)
        return await answer(kg, _posted_query(request, body), request)

    async def answer(kg: str, text: str, request: Request) -> Response:
        caller = caller_of(request)
        store = await opened(catalog, kg, caller)
        query = await _checked(text)
        result_format = negotiate(request.headers.get("accept", ""), query)
        result, cached = await queries.answer(
            QuerySource(kg, store),
            query,
            result_format,
            caller,
            deadline_s=store.query_deadline_s or settings.query_deadline_s,
        )
        headers = {
            "Kbqa-Graph-Version": store.version,
            "Kbqa-Truncated": str(result.truncated).lower(),
            "Kbqa-Cached": str(cached).lower(),
            "Vary": "Accept",
        }
        return Response(result.body, headers=headers, media_type=result.format.value)

    return router


async def _checked(text: str) -> CheckedQuery:
    """`check_query`; a long text is checked in a thread, because that takes a noticeable part of a second."""
    return check_query(text) if len(text) <= _SHORT_CHARS else await run_in_threadpool(check_query, text)


def negotiate(accept: str, query: CheckedQuery) -> ResultFormat:
    """The format that an Accept header prefers among those available for the query's form.

    Raises:
        HTTPException: 406 if the header accepts none of them.
    """
    offered = _GRAPH_TYPES if query.returns_graph else _ROW_TYPES
    wishes: list[tuple[float, int, str]] = []
    for position, part in enumerate(accept.split(",")):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        if media_type:
            wishes.append((-_number(quality), position, media_type))
    if not wishes:
        return next(iter(offered.values()))
    for negative_quality, _, media_type in sorted(wishes):
        if negative_quality == 0:
            continue
        if media_type in offered:
            return offered[media_type]
        if media_type == "*/*" or media_type.endswith("/*"):
            family = media_type.removesuffix("*").removeprefix("*/")
            for known, result_format in offered.items():
                if known.startswith(family):
                    return result_format
    raise HTTPException(406, f"no accepted format fits the query; available: {', '.join(offered)}")


def _number(quality: str) -> float:
    try:
        return float(quality)
    except ValueError:
        return 0.0


def _posted_query(request: Request, body: bytes) -> str:
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type == "application/sparql-query":
        _refuse_data_sets(_pairs(request.scope["query_string"]))
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise HTTPException(400, "the query is not UTF-8") from error
    if media_type == "application/x-www-form-urlencoded":
        return _sole_query(body)
    if media_type == "application/sparql-update":
        raise QueryRefusedError("updates are refused: queries only read the graph that they are sent to")
    raise HTTPException(415, "send application/sparql-query or application/x-www-form-urlencoded")


def _sole_query(encoded: bytes) -> str:
    pairs = _pairs(encoded)
    _refuse_data_sets(pairs)
    queries = [value for name, value in pairs if name == "query"]
    if len(queries) != 1:
        raise HTTPException(400, f"exactly one query parameter is required, {len(queries)} were sent")
    return queries[0]


def _pairs(encoded: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(encoded.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise HTTPException(400, f"the parameters are not URL-encoded UTF-8: {error}") from error


def _refuse_data_sets(pairs: list[tuple[str, str]]) -> None:
    for name, _ in pairs:
        if name in (
            "default-graph-uri",
            "named-graph-uri",
            "update",
            "using-graph-uri",
            "using-named-graph-uri",
        ):
            raise QueryRefusedError(f"{name} is refused: queries only read the graph that they are sent to")

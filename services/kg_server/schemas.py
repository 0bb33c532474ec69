"""The envelope of `POST /v1/kg/{kg}/actions`: read by hand for speed, documented by models."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field

from kbqa.kg.actions import ActionResult, ErrorCode, ErrorKind, Success

_FIELDS = frozenset({"actions", "graph"})


def parse_batch(body: bytes, max_batch: int) -> tuple[list[dict[str, Any]], str | None]:
    """The actions of a request, and the per-question subgraph that restricts them.

    Whatever is wrong inside an action is left for the action's own result.

    Raises:
        HTTPException: 400 for what is not JSON in UTF-8, 422 for what is not the envelope.
    """
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    if not isinstance(envelope, dict):
        raise HTTPException(422, 'the body is not an object {"actions": […], "graph"?: "…"}')
    unknown = sorted(envelope.keys() - _FIELDS)
    if unknown:
        raise HTTPException(422, f"unknown fields: {', '.join(unknown)[:200]}; known: actions, graph")
    actions, graph = envelope.get("actions"), envelope.get("graph")
    if not isinstance(actions, list) or not all(isinstance(action, dict) for action in actions):
        raise HTTPException(422, "actions: a list of objects is required")
    if len(actions) > max_batch:
        raise HTTPException(422, f"actions: {len(actions)} in one batch, at most {max_batch} are taken")
    if graph is not None and not isinstance(graph, str):
        raise HTTPException(422, "graph: a string is required")
    return actions, graph


def dump_batch(kg: str, version: str, results: list[bytes]) -> bytes:
    """The answer, as JSON, of results that are JSON already."""
    head = orjson.dumps({"kg": kg, "version": version})[:-1]
    return b'%b,"results":[%b]}' % (head, b",".join(results))


def dump_result(result: ActionResult) -> dict[str, Any]:
    """A result as it stands in an answer."""
    dumped: dict[str, Any]
    if isinstance(result, Success):
        dumped = {
            "status": "ok",
            "items": result.items,
            "total": result.total,
            "truncated": result.truncated,
            "cached": result.cached,
            "elapsed_ms": round(result.elapsed_ms, 4),
        }
    else:
        dumped = {"status": "error", "code": result.code, "kind": result.kind, "message": result.message}
    if result.details:
        dumped["details"] = result.details
    return dumped


class ActionModel(BaseModel):
    """One action. Which arguments it takes depends on `action`; what is wrong with them is the
    action's result, never the request's."""

    action: Literal[
        "get_tail_relations", "get_head_relations", "get_tail_entities", "get_head_entities", "link_entities"
    ]
    entity: str | None = Field(None, description="id or exact label; of the four one-hop actions")
    relation: str | None = Field(None, description="id or exact label; of get_tail_/get_head_entities")
    question: str | None = Field(None, description="of link_entities")
    limit: int | None = Field(None, ge=1, description="items at most")
    offset: int | None = Field(None, ge=0, description="items to skip")


class BatchModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    actions: list[ActionModel]
    graph: str | None = Field(None, description="id of a per-question subgraph")


class ItemModel(BaseModel):
    id: str = Field(description="what an action accepts back")
    label: str
    start: int | None = Field(
        None, description="of link_entities: where the question names it, in characters"
    )
    end: int | None = None


class SuccessModel(BaseModel):
    status: Literal["ok"]
    items: list[ItemModel]
    total: int = Field(description="before truncation")
    truncated: bool
    cached: bool
    elapsed_ms: float


class FailureModel(BaseModel):
    status: Literal["error"]
    code: ErrorCode
    kind: ErrorKind
    message: str


class AnswerModel(BaseModel):
    kg: str
    version: str
    results: list[SuccessModel | FailureModel] = Field(description="one per action, in order")


class GraphModel(BaseModel):
    name: str
    version: str
    triples: int
    entities: int


class GraphsModel(BaseModel):
    graphs: list[GraphModel]

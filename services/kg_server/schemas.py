"""Bodies of `POST /v1/kg/{kg}/actions`: parsed by hand for speed, documented by schemas and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import orjson
from fastapi import HTTPException
from pydantic import BaseModel, Field

from kbqa.kg.actions import ActionResult, ErrorCode, ErrorKind, Success
from kbqa.kg.arguments import Argument
from kbqa.kg.retrieval import ACTIONS

_FIELDS = frozenset({"actions", "graph"})


def parse_batch(body: bytes, max_batch: int) -> tuple[list[dict[str, Any]], str | None]:
    """The actions of a request, and the id of the per-question subgraph that restricts them.

    Actions are not validated; an error in an action becomes the action's result.

    Raises:
        HTTPException: 400 if the body is not JSON in UTF-8, 422 if it is not a valid batch.
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
        raise HTTPException(422, f"actions: {len(actions)} in one batch, but at most {max_batch} are allowed")
    if graph is not None and not isinstance(graph, str):
        raise HTTPException(422, "graph: a string is required")
    return actions, graph


def dump_batch(kg: str, version: str, results: list[bytes]) -> bytes:
    """The response as JSON, from results that are already JSON."""
    head = orjson.dumps({"kg": kg, "version": version})[:-1]
    return b'%b,"results":[%b]}' % (head, b",".join(results))


def dump_result(result: ActionResult) -> dict[str, Any]:
    """The JSON object of a result."""
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


def batch_schema() -> dict[str, Any]:
    """JSON schema of a request's body, generated from all actions.

    An error in an action's arguments becomes the action's result; the request does not fail.
    """
    return {
        "type": "object",
        "properties": {
            "actions": {"type": "array", "items": _action_schema()},
            "graph": {"type": ["string", "null"], "description": "id of a per-question subgraph"},
        },
        "required": ["actions"],
        "additionalProperties": False,
    }


def _action_schema() -> dict[str, Any]:
    used: dict[str, list[tuple[str, Argument]]] = {}
    for spec in ACTIONS.values():
        for name, argument in spec.arguments.items():
            used.setdefault(name, []).append((spec.name, argument))
    return {
        "type": "object",
        "description": "One action. Its arguments depend on `action`. An error in them becomes the action's "
        "result; the request does not fail.",
        "properties": {
            "action": {"type": "string", "enum": list(ACTIONS)},
            **{name: _argument_schema(uses) for name, uses in used.items()},
        },
        "required": ["action"],
    }


def _argument_schema(uses: Sequence[tuple[str, Argument]]) -> dict[str, Any]:
    """Schema of an argument that several actions take, possibly with different meanings."""
    actions: dict[str, list[str]] = {}
    schemas: list[Mapping[str, Any]] = []
    for action, argument in uses:
        actions.setdefault(argument.description, []).append(action)
        if argument.kind.schema not in schemas:
            schemas.append(argument.kind.schema)
    of_all = len(uses) == len(ACTIONS) and len(actions) == 1
    says = (text if of_all else f"{', '.join(names)}: {text}" for text, names in actions.items())
    kind = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {**kind, "description": ". ".join(says)}


class ItemModel(BaseModel):
    """An entity, relation or type."""

    id: str = Field(description="id, which actions accept")
    label: str
    times: list[str] | None = Field(
        None, description="for a dated fact: when it held, as a point or as start and end"
    )
    start: int | None = Field(
        None, description="for link_entities: position of the name in the question, in characters"
    )
    end: int | None = None
    score: float | None = Field(None, description="similarity; 1 for the exact name")
    direction: Literal["out", "in", ""] | None = Field(
        None, description="for a ranked relation: whether the entity is its head"
    )


class SuccessModel(BaseModel):
    """The result of an action that succeeded.

    Items are entities, relations or types. Items of execute_sparql are solutions: variable → term with id and
    label. Items of search_graph_patterns, node_relations and describe are objects with other fields.
    """

    status: Literal["ok"]
    items: list[ItemModel | dict[str, Any]]
    total: int = Field(description="number of items before truncation")
    truncated: bool
    cached: bool
    elapsed_ms: float
    details: dict[str, Any] | None = Field(
        None, description="further results of the action: variables, boolean, distance, expression …"
    )


class FailureModel(BaseModel):
    status: Literal["error"]
    code: ErrorCode
    kind: ErrorKind
    message: str
    details: dict[str, Any] | None = Field(
        None, description="help to continue: line and column of a syntax error, candidates …"
    )


class AnswerModel(BaseModel):
    kg: str
    version: str
    results: list[SuccessModel | FailureModel] = Field(description="one result per action, in order")


class GraphModel(BaseModel):
    name: str
    version: str
    triples: int | None = Field(description="null if an endpoint was too slow to count them")
    entities: int | None
    lost_relations: list[str] = Field(
        description="relations that facts had when the graph was loaded, and that no fact has any more"
    )
    query_deadline_s: float | None = Field(
        None, description="seconds that a query of an action may run, if the graph has a time of its own"
    )


class GraphsModel(BaseModel):
    graphs: list[GraphModel]

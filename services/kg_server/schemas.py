"""The envelope of `POST /v1/kg/{kg}/actions`: read by hand for speed, documented by models."""

from __future__ import annotations

from typing import Any, Literal

import orjson
from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field

from kbqa.kg.actions import ActionResult, ErrorCode, ErrorKind, Success
from kbqa.kg.retrieval.follow_path import MAX_STEPS

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
        raise HTTPException(422, f"actions: {len(actions)} in one batch, but at most {max_batch} are allowed")
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
        "get_tail_relations",
        "get_head_relations",
        "get_tail_entities",
        "get_head_entities",
        "find_relation",
        "execute_logical_form",
        "search_types",
        "search_graph_patterns",
        "execute_sparql",
        "node_relations",
        "entity_distance",
        "describe",
        "link_entities",
        "follow_path",
    ]
    entity: str | None = Field(
        None,
        description=(
            "id or exact label; for the four one-hop actions, find_relation, describe and follow_path"
        ),
    )
    relation: str | None = Field(
        None, description="id or exact label for get_tail_/get_head_entities; any text for find_relation"
    )
    expression: str | None = Field(None, description="S-expression; for execute_logical_form, find_relation")
    question: str | None = Field(None, description="for link_entities, node_relations and follow_path")
    path: list[str] | None = Field(
        None,
        max_length=MAX_STEPS,
        description="relations from the entity on, by id or exact label; one after ^ is followed from tail "
        "to head; of follow_path",
    )
    relations: int | None = Field(
        None,
        ge=0,
        description="for follow_path: maximum number of listed relations, the best for the question",
    )
    return_: bool | None = Field(
        None,
        alias="return",
        description="for follow_path: whether the path may return to the entity, which is otherwise left out",
    )
    query: str | None = Field(
        None,
        description="SPARQL, of execute_sparql (SELECT, ASK) and of node_relations with a variable; "
        "of search_types what to look for",
    )
    sparql: str | None = Field(
        None, description="SELECT ?x WHERE { … }, or ?e, around which search_graph_patterns searches"
    )
    semantic: str | None = Field(None, description="text by which search_graph_patterns ranks")
    node: str | None = Field(
        None, description="for node_relations: id, exact label, or a variable of the query (?x)"
    )
    set_a: list[str] | None = Field(None, description="ids or exact labels; for entity_distance")
    set_b: list[str] | None = Field(None, description="ids or exact labels; for entity_distance")
    max_distance: int | None = Field(None, ge=0, le=10, description="for entity_distance (default: 3)")
    timeout_s: float | None = Field(
        None, gt=0, le=3600, description="for execute_sparql, in seconds; at most the server's limit"
    )
    gate: bool | None = Field(
        None, description="of get_tail_/get_head_entities and execute_logical_form: relations by resemblance"
    )
    tau_high: float | None = Field(
        None, ge=0, le=1, description="threshold of gated actions; see also tau_low and top_k"
    )
    tau_low: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(
        None, ge=1, le=100, description="number of candidates in the result of a gated action"
    )
    now: str | None = Field(
        None, description="for execute_logical_form: the date that NOW means, such as 2015-08-10"
    )
    explain: bool | None = Field(
        None, description="for execute_logical_form: return the equivalent `sparql` in `details`"
    )
    limit: int | None = Field(
        None, ge=1, description="maximum number of items (default for ranked results: 10)"
    )
    offset: int | None = Field(None, ge=0, description="number of items to skip")


class BatchModel(BaseModel):
    model_config = ConfigDict(extra="forbid")

    actions: list[ActionModel]
    graph: str | None = Field(None, description="id of a per-question subgraph")


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
    """Items are entities, relations or types; of execute_sparql solutions, variable → term with
    id and label; of search_graph_patterns, node_relations and describe objects of their own."""

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


class GraphsModel(BaseModel):
    graphs: list[GraphModel]

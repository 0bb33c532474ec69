"""KG-R1's four one-hop actions, with its errors word for word (Figure 5).

The messages that the figure lacks are made by analogy: "head" for "tail", "tail" for
"head".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    ActionResult,
    ErrorKind,
    Success,
)
from kbqa.kg.handlers import TEXT, Handler, Surroundings, failure, paging, quote, resolved
from kbqa.kg.store import Page

_OTHER = {"tail": "head", "head": "tail"}


def _relations(side: str, surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    store, entity = surroundings.store, arguments["entity"]
    entities = resolved(store, (entity,))
    if not isinstance(entities, tuple):
        return entities
    limit, offset = paging(surroundings, arguments)
    look_up = store.tail_relations if side == "tail" else store.head_relations
    page = look_up(entities, limit=limit, offset=offset)
    if page.total == 0:
        message = f"No {side} relations found for entity {quote(entity)} in knowledge graph"
        return failure(ErrorKind.NO_RELATIONS_FOUND, message)
    return _success(page, offset)


def _entities(side: str, surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    store, entity, relation = surroundings.store, arguments["entity"], arguments["relation"]
    entities = resolved(store, (entity,))
    if not isinstance(entities, tuple):
        return entities
    relations = store.resolve_relation(relation)
    if not relations:
        return failure(ErrorKind.INVALID_RELATION, f"Relation {quote(relation)} not found in KG")
    limit, offset = paging(surroundings, arguments)
    look_up = store.tail_entities if side == "tail" else store.head_entities
    page = look_up(entities, relations, limit=limit, offset=offset)
    if page.total == 0:
        where = f"for relation {quote(relation)} with {_OTHER[side]} {quote(entity)}"
        message = f"No {side} entities found {where} in knowledge graph"
        return failure(ErrorKind.NO_ENTITIES_FOUND, message)
    return _success(page, offset)


def _success(page: Page, offset: int) -> Success[Any]:
    return Success(page.items, page.total, truncated=offset + len(page.items) < page.total)


_ONE_ENTITY = "only one entity argument"
_ENTITY_AND_RELATION = "only one entity and one relation argument"

HANDLERS: Mapping[str, Handler] = {
    GET_TAIL_RELATIONS: Handler(partial(_relations, "tail"), {"entity": TEXT}, accepts=_ONE_ENTITY),
    GET_HEAD_RELATIONS: Handler(partial(_relations, "head"), {"entity": TEXT}, accepts=_ONE_ENTITY),
    GET_TAIL_ENTITIES: Handler(
        partial(_entities, "tail"), {"entity": TEXT, "relation": TEXT}, accepts=_ENTITY_AND_RELATION
    ),
    GET_HEAD_ENTITIES: Handler(
        partial(_entities, "head"), {"entity": TEXT, "relation": TEXT}, accepts=_ENTITY_AND_RELATION
    ),
}

"""KG-R1's four one-hop actions, with its errors word for word (Figure 5).

The messages that the figure lacks are made by analogy: "head" for "tail", "tail" for
"head". With `gate`, the relation of the two entity actions is a text that RRCG (`gating`)
matches with the relations which the entity has on that side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    ActionResult,
    ErrorKind,
    Failure,
    Success,
)
from kbqa.kg.handlers import FLAG, TEXT, Handler, Surroundings, failure, paging, quote, resolved
from kbqa.kg.ranking.gating import GATE_ARGUMENTS, Gate, Neighbours, Tier, read_relation
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
        return _no_relations(side, entity)
    return _success(page, offset)


def _entities(side: str, surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    store, entity, relation = surroundings.store, arguments["entity"], arguments["relation"]
    entities = resolved(store, (entity,))
    if not isinstance(entities, tuple):
        return entities
    details: Mapping[str, Any] = {}
    if arguments.get("gate", False):
        found = _gated(side, surroundings, arguments, entities)
        if isinstance(found, Failure):
            return found
        relations, details = found
    else:
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
    return _success(page, offset, details)


def _gated(
    side: str, surroundings: Surroundings, arguments: Mapping[str, Any], entities: Sequence[str]
) -> tuple[tuple[str, ...], Mapping[str, Any]] | Failure:
    """The relation that is meant, of those that the entities have on a side; and what to tell of it."""
    gate = Gate.of(surroundings, arguments)
    if isinstance(gate, Failure):
        return gate
    neighbours = Neighbours.of(surroundings.store, entities)
    neighbours = Neighbours(out=neighbours.out) if side == "tail" else Neighbours(into=neighbours.into)
    verdict = gate.judge(read_relation(arguments["relation"])[0], neighbours)
    if verdict is None:
        return _no_relations(side, arguments["entity"])
    if verdict.tier is Tier.LOW:
        return verdict.rejection(arguments["entity"])
    return (verdict.relation.id,), verdict.details(gate.top_k)


def _no_relations(side: str, entity: str) -> Failure:
    message = f"No {side} relations found for entity {quote(entity)} in knowledge graph"
    return failure(ErrorKind.NO_RELATIONS_FOUND, message)


def _success(page: Page, offset: int, details: Mapping[str, Any] | None = None) -> Success[Any]:
    truncated = offset + len(page.items) < page.total
    return Success(page.items, page.total, truncated, details=details or {})


_ONE_ENTITY = "only one entity argument"
_ENTITY_AND_RELATION = "only one entity and one relation argument"
_GATE = {"gate": FLAG, **GATE_ARGUMENTS}

HANDLERS: Mapping[str, Handler] = {
    GET_TAIL_RELATIONS: Handler(partial(_relations, "tail"), {"entity": TEXT}, accepts=_ONE_ENTITY),
    GET_HEAD_RELATIONS: Handler(partial(_relations, "head"), {"entity": TEXT}, accepts=_ONE_ENTITY),
    GET_TAIL_ENTITIES: Handler(
        partial(_entities, "tail"), {"entity": TEXT, "relation": TEXT}, _GATE, _ENTITY_AND_RELATION
    ),
    GET_HEAD_ENTITIES: Handler(
        partial(_entities, "head"), {"entity": TEXT, "relation": TEXT}, _GATE, _ENTITY_AND_RELATION
    ),
}

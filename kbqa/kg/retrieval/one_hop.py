"""KG-R1's four one-hop actions, with its errors word for word (Figure 5).

Messages that are missing from the figure are made by analogy, with "head" and "tail"
exchanged. With `gate`, the relation of the two entity actions is a text that RRCG (`gating`)
matches against the entity's relations on that side.
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
    DatedItem,
    ErrorKind,
    Failure,
    Success,
    Triple,
)
from kbqa.kg.arguments import ENTITY, FLAG, RELATION, Argument
from kbqa.kg.handlers import Surroundings, failure, paging, quote, resolved
from kbqa.kg.ranking.gating import GATE_ARGUMENTS, Neighbours, RelationGate, Tier, read_relation
from kbqa.kg.specs import ACTIONS, ActionSpec, Cost, one_fact_each
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
    """The relation that the text means among the entities' relations on a side, and the details."""
    gate = RelationGate.of(surroundings, arguments)
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


def _cites(
    side: str, arguments: Mapping[str, Any], items: Sequence[str], details: Mapping[str, Any]
) -> list[tuple[Triple, ...]]:
    # For a gated relation, the one that was executed.
    relation = details["relation"]["id"] if "relation" in details else arguments["relation"]
    return one_fact_each(arguments["entity"], relation, items, forwards=side == "tail")


def _relations_spec(name: str, side: str, description: str) -> ActionSpec:
    return ActionSpec(
        name,
        description,
        partial(_relations, side),
        {"entity": ENTITY},
        accepts="only one entity argument",
        cost=Cost.LOOK_UP,
        errors=(ErrorKind.ENTITY_NOT_IN_KG, ErrorKind.NO_RELATIONS_FOUND),
    )


def _entities_spec(name: str, side: str, description: str) -> ActionSpec:
    return ActionSpec(
        name,
        description,
        partial(_entities, side),
        {"entity": ENTITY, "relation": RELATION},
        {
            "gate": Argument(FLAG, "whether `relation` is a phrase for the relation that is meant"),
            **GATE_ARGUMENTS,
        },
        accepts="only one entity and one relation argument",
        item=DatedItem,
        answers="Only items of dated facts have `times`. With `gate`, details as of `find_relation`.",
        cost=Cost.LOOK_UP,
        costly=("gate",),  # asks an encoder, which may be a model or a remote server
        errors=(
            ErrorKind.ENTITY_NOT_IN_KG,
            ErrorKind.INVALID_RELATION,
            ErrorKind.RELATION_REJECTED,
            ErrorKind.NO_RELATIONS_FOUND,
            ErrorKind.NO_ENTITIES_FOUND,
        ),
        cites=partial(_cites, side),
    )


ACTIONS.register(
    _relations_spec(
        GET_TAIL_RELATIONS,
        "tail",
        "List the relations that lead away from an entity: those of its facts (entity, relation, ?). Call it "
        "before get_tail_entities, to see what can be asked.",
    )
)
ACTIONS.register(
    _relations_spec(
        GET_HEAD_RELATIONS,
        "head",
        "List the relations that lead to an entity: those of the facts (?, relation, entity). Call it before "
        "get_head_entities.",
    )
)
ACTIONS.register(
    _entities_spec(
        GET_TAIL_ENTITIES,
        "tail",
        "List what a relation leads to from an entity: every ? of (entity, relation, ?), for instance the "
        "actors of a film for entity=the film, relation=starred_actors.",
    )
)
ACTIONS.register(
    _entities_spec(
        GET_HEAD_ENTITIES,
        "head",
        "List what has a relation to an entity: every ? of (?, relation, entity), for instance the films "
        "of an actor for entity=the actor, relation=starred_actors.",
    )
)

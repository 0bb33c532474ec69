"""An action as another distribution writes it: one value, and nothing of it anywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbqa.kg.actions import ActionResult, ErrorKind, Item, Success
from kbqa.kg.arguments import ENTITY, Argument, whole_number
from kbqa.kg.handlers import Surroundings, paging, resolved
from kbqa.kg.specs import ActionSpec


@dataclass(frozen=True, slots=True)
class Degree(Item):
    """An entity, and the number of relations of which it is the head."""

    relations: int


def _count_relations(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    store = surroundings.store
    entities = resolved(store, (arguments["entity"],))
    if not isinstance(entities, tuple):
        return entities
    found = [Degree(entity, entity, store.tail_relations([entity], limit=1).total) for entity in entities]
    items = tuple(degree for degree in found if degree.relations >= arguments.get("at_least", 0))
    limit, offset = paging(surroundings, arguments)
    return Success(items[offset : offset + limit], len(items))


COUNT_RELATIONS = ActionSpec(
    "count_relations",
    "Count the relations that lead away from an entity. Tells a hub from a leaf.",
    _count_relations,
    {"entity": ENTITY},
    {"at_least": Argument(whole_number(1), "leave out entities with fewer")},
    item=Degree,
    errors=(ErrorKind.ENTITY_NOT_IN_KG,),
)
